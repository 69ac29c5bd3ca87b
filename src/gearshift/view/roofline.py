"""What regions reach of what the machine can do: speed over arithmetic per byte, both as powers of
ten, under the roof that memory and arithmetic set.

Must not know how anything was measured.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import ceil, floor, log10

from gearshift.view.palette import colours
from gearshift.view.svg import Scale, element, label, linear, picture, polyline, tooltip

WIDTH, HEIGHT = 960.0, 380.0
LEFT, RIGHT, TOP, BOTTOM = 70.0, 130.0, 26.0, 44.0
SMALLEST, LARGEST = 3.0, 14.0
"""Of a dot: its area tells the share of the time."""
BOUNDS = ("compute", "memory")


@dataclass(frozen=True, slots=True, kw_only=True)
class Roof:
    peak_flops_s: float
    bytes_s: Mapping[str, float]
    """From each level of memory, by its name."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Dot:
    name: str
    intensity: float
    """Operations per byte."""
    flops_s: float
    bound: str
    share: float
    """Of the time of all."""


def roofline_chart(roof: Roof, dots: Sequence[Dot]) -> str:
    ridges = [roof.peak_flops_s / bytes_s for bytes_s in roof.bytes_s.values()]
    low_x, high_x = _decades([*(dot.intensity for dot in dots), *ridges])
    low_y, high_y = _decades([*(dot.flops_s for dot in dots), roof.peak_flops_s])
    across = linear(low_x, high_x, LEFT, WIDTH - RIGHT)
    up = linear(low_y, high_y, HEIGHT - BOTTOM, TOP)
    return picture(
        WIDTH,
        HEIGHT,
        "speed of regions under the machine's roofline",
        *_axes(range(low_x, high_x + 1), range(low_y, high_y + 1), across, up),
        *_roofs(roof, (low_x, high_x), low_y, across, up),
        *_dots(dots, across, up),
    )


def _decades(values: Sequence[float]) -> tuple[int, int]:
    """The powers of ten around them."""
    return floor(log10(min(values))), ceil(log10(max(values)) + 0.01)


def _axes(xs: range, ys: range, across: Scale, up: Scale) -> list[str]:
    bottom = HEIGHT - BOTTOM
    drawn = []
    for power in ys:
        y = up(power)
        drawn.append(element("line", x1=LEFT, x2=WIDTH - RIGHT, y1=y, y2=y))
        drawn.append(label(f"{10.0 ** (power - 9):g}", LEFT - 6, y + 4, text_anchor="end"))
    for power in xs:
        x = across(power)
        drawn.append(element("line", x1=x, x2=x, y1=TOP, y2=bottom))
        drawn.append(label(f"{10.0**power:g}", x, bottom + 16, text_anchor="middle"))
    middle = (LEFT + WIDTH - RIGHT) / 2
    drawn.append(label("operations per byte", middle, HEIGHT - 8, text_anchor="middle"))
    drawn.append(label("Gop/s", LEFT - 6, TOP - 12, text_anchor="end"))
    return [element("g", *drawn, class_="axis")]


def _roofs(roof: Roof, ends: tuple[int, int], lowest: int, across: Scale, up: Scale) -> list[str]:
    """Up to where memory no longer limits; from there on arithmetic does."""
    drawn = []
    peak = log10(roof.peak_flops_s)
    levels: dict[str, list[str]] = {}
    for name, bytes_s in roof.bytes_s.items():
        levels.setdefault(f"{bytes_s / 1e9:.3g} GB/s", []).append(name)
    for rate_text, names in levels.items():
        bytes_s = roof.bytes_s[names[0]]
        rate, ridge = log10(bytes_s), peak - log10(bytes_s)
        begin = max(ends[0], lowest - rate)
        line = [(across(begin), up(rate + begin)), (across(ridge), up(peak))]
        about = f"{', '.join(names)}: {rate_text}"
        drawn.append(polyline([*line, (across(ends[1]), up(peak))], class_="edge"))
        drawn.append(label(about, line[0][0] + 6, line[0][1] - 6, class_="muted"))
    top = f"{roof.peak_flops_s / 1e9:.3g} Gop/s"
    drawn.append(label(top, across(ends[1]) + 6, up(peak) + 4, class_="muted"))
    return drawn


def _dots(dots: Sequence[Dot], across: Scale, up: Scale) -> list[str]:
    kinds = colours(BOUNDS)
    drawn = []
    for dot in sorted(dots, key=lambda dot: -dot.share):
        about = (
            f"{dot.name}: {dot.flops_s / 1e9:.3g} Gop/s at {dot.intensity:.3g} operations per byte,"
            f" {dot.share:.0%} of the time, bound by {dot.bound}"
        )
        drawn.append(
            element(
                "circle",
                tooltip(about),
                cx=across(log10(dot.intensity)),
                cy=up(log10(dot.flops_s)),
                r=max(SMALLEST, LARGEST * dot.share**0.5),
                class_=kinds[dot.bound],
                fill_opacity=0.6,
            )
        )
    return drawn
