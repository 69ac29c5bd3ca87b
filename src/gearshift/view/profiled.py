"""A model's regions as measured, as one page: under the machine's roofline, level by level, and by
every setting.

Must not know how anything was measured.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from html import escape

from gearshift.view.html import document, facts_table, header, section
from gearshift.view.palette import colours
from gearshift.view.regions import key
from gearshift.view.roofline import BOUNDS, Dot, Roof, roofline_chart

MOST_OPS = 20


@dataclass(frozen=True, slots=True, kw_only=True)
class Line:
    """One branch of the hierarchy."""

    level: int
    name: str
    num_ops: int
    seconds: float
    """As PyTorch runs its ops, one by one."""
    share: float
    """Of the time of the whole model."""
    flops: float
    moved_bytes: float
    intensity: float | None
    """Operations per byte; None, as what follows, where the work cannot be counted."""
    bound: str | None
    of_roof: float | None
    rewrites_s: Mapping[str, float] = field(default_factory=dict)
    """By setting, where it was measured as a region of its own."""


@dataclass(frozen=True, slots=True, kw_only=True)
class HotOp:
    name: str
    kind: str
    seconds: float
    share: float
    moved_bytes: int
    set_bytes: int
    transfer_bytes: int
    contiguous: bool


def profile_page(
    model: str, roof: Roof, lines: Sequence[Line], ops: Sequence[HotOp], facts: Mapping[str, str]
) -> str:
    leaves = [line for line in lines if line.rewrites_s]
    dots = [dot for dot in map(_dot, leaves) if dot is not None]
    whole_s = sum(line.seconds for line in lines if line.level == 0)
    numbers = [
        ("all ops, one by one", f"{whole_s * 1e3:.2f} ms"),
        ("regions", str(len(leaves))),
        ("peak", f"{roof.peak_flops_s / 1e9:.3g} Gop/s"),
    ]
    return document(
        f"Gearshift: profile of {model}",
        header(f"{model}, profiled", numbers),
        section("Under the roofline", _roofline(roof, dots)),
        section("Regions", _regions(lines)),
        section("Ops that take longest", _ops(ops)),
        section("Machine and versions", facts_table(facts)),
    )


def _dot(line: Line) -> Dot | None:
    if not line.intensity or line.bound is None or not line.flops:
        return None
    return Dot(
        name=line.name,
        intensity=line.intensity,
        flops_s=line.flops / line.seconds,
        bound=line.bound,
        share=line.share,
    )


def _roofline(roof: Roof, dots: Sequence[Dot]) -> str:
    if not dots:
        return "<p>No region's work can be counted.</p>"
    keys = "".join(key(f"bound by {name}", f"fill {css}") for name, css in colours(BOUNDS).items())
    return (
        f"<p class=legend>{keys}</p><div class=wide>{roofline_chart(roof, dots)}</div>"
        "<p class=muted>A dot is a region as PyTorch runs it; its area, its share of the time. A"
        " region cannot be above the roof of the level of memory it reads from.</p>"
    )


def _regions(lines: Sequence[Line]) -> str:
    settings = list(dict.fromkeys(name for line in lines for name in line.rewrites_s))
    head = "".join(
        f"<th>{escape(name)}</th>"
        for name in (
            *("region", "ops", "eager", "", "Gop", "MB", "op/byte", "bound by", "of the roof"),
            *settings,
        )
    )
    rows = "".join(_row(line, settings) for line in lines)
    return (
        f"<div class=wide><table><tr>{head}</tr>{rows}</table></div>"
        "<p class=muted>Milliseconds; the fastest setting of a region is bold.</p>"
    )


def _row(line: Line, settings: Sequence[str]) -> str:
    fastest_s = min(line.rewrites_s.values(), default=None)
    measured = [line.rewrites_s.get(name) for name in settings]
    cells = [
        str(line.num_ops),
        f"{line.seconds * 1e3:.3f}",
        f"{line.share:.0%}",
        f"{line.flops / 1e9:.3g}",
        f"{line.moved_bytes / 1e6:.3g}",
        "-" if line.intensity is None else f"{line.intensity:.3g}",
        line.bound or "-",
        "-" if line.of_roof is None else f"{line.of_roof:.0%}",
        *(_ms(seconds, fastest_s) for seconds in measured),
    ]
    numbers = "".join(f"<td class=number>{cell}</td>" for cell in cells)
    indent = 14 * line.level
    return f'<tr><td style="padding-left:{indent}px">{escape(line.name)}</td>{numbers}</tr>'


def _ms(seconds: float | None, fastest_s: float | None) -> str:
    if seconds is None:
        return ""
    text = f"{seconds * 1e3:.3f}"
    return f"<b>{text}</b>" if seconds == fastest_s else text


def _ops(ops: Sequence[HotOp]) -> str:
    head = (
        "<tr><th>op</th><th>kind</th><th>ms</th><th></th><th>MB moved</th>"
        "<th>MB distinct</th><th>MB to and from others</th><th>reads in order</th></tr>"
    )
    rows = "".join(
        f"<tr><td>{escape(op.name)}</td><td>{escape(op.kind)}</td>"
        f"<td class=number>{op.seconds * 1e3:.3f}</td><td class=number>{op.share:.0%}</td>"
        f"<td class=number>{op.moved_bytes / 1e6:.3g}</td>"
        f"<td class=number>{op.set_bytes / 1e6:.3g}</td>"
        f"<td class=number>{op.transfer_bytes / 1e6:.3g}</td>"
        f"<td>{'yes' if op.contiguous else 'no'}</td></tr>"
        for op in sorted(ops, key=lambda op: -op.seconds)[:MOST_OPS]
    )
    return f"<div class=wide><table>{head}{rows}</table></div>"
