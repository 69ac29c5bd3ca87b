"""Results of the command line as tables for people, on stdout.

Must not know how anything was measured.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from gearshift.console import wide
from gearshift.doctor import Diagnosis
from gearshift.live import Run
from gearshift.runtime import Runtime
from gearshift.tell import machine_lines
from gearshift.view.profiled import Line

TESTED_ON = {"split": "regions", "rewrite": "models", "unroll": "architectures"}
"""What is kept apart, by what the agent decides."""


def show_run(runtime: Runtime, run: Run) -> None:
    eager = runtime.program.reference_name
    table = Table(title=f"in turns with {eager}; largest difference {run.max_error:.1e}")
    table.add_column("", no_wrap=True)
    for column in ("calls", "mean ms", "median ms", "p95 ms", f"vs {eager}"):
        table.add_column(column, justify="right")
    rows = ((eager, run.theirs, 1.0), ("gearshift, all the time", run.ours, run.vs_eager))
    for name, series, ratio in (*rows, ("at the end", run.ours.end(), run.vs_eager_at_end)):
        times = [f"{s * 1e3:.2f}" for s in (series.mean_s, series.median_s, series.p95_s)]
        table.add_row(name, str(series.num_calls), *times, f"{ratio:.2f}x")
    out = Console()
    out.print(table)
    out.print(runtime.explain(), markup=False, soft_wrap=True, highlight=False)


def show_profile(lines: Sequence[Line]) -> None:
    work = Table(title="as PyTorch runs them, op by op")
    work.add_column("region", no_wrap=True)
    for column in ("ops", "ms", "", "Gop", "MB", "op/byte", "bound by", "of the roof"):
        work.add_column(column, justify="right")
    for line in lines:
        work.add_row(
            escape(f"{'  ' * line.level}{line.name}"),
            *(str(line.num_ops), f"{line.seconds * 1e3:.3f}", f"{line.share:.0%}"),
            *(f"{line.flops / 1e9:.3g}", f"{line.moved_bytes / 1e6:.3g}"),
            "-" if line.intensity is None else f"{line.intensity:.3g}",
            line.bound or "-",
            "-" if line.of_roof is None else f"{line.of_roof:.0%}",
        )
    wide().print(work, _by_setting([line for line in lines if line.rewrites_s]))


def _by_setting(lines: Sequence[Line]) -> Table:
    settings = list(dict.fromkeys(name for line in lines for name in line.rewrites_s))
    table = Table(title="ms per region")
    table.add_column("region", no_wrap=True)
    for setting in settings:
        table.add_column(setting, justify="right")
    for line in lines:
        fastest_s = min(line.rewrites_s.values())
        cells = (_cell(line.rewrites_s.get(setting), fastest_s) for setting in settings)
        table.add_row(escape(line.name), *cells)
    return table


def show_doctor(found: Diagnosis) -> None:
    out = wide()
    machine_table = Table("machine", "", box=None)
    for name, text in machine_lines(found.machine).items():
        machine_table.add_row(name, text)
    backends = Table("backend", "works", "", box=None)
    for backend in found.backends:
        backends.add_row(backend.name, "yes" if backend.works else "no", escape(backend.told))
    engines = Table("engine", "kind", "cores", box=None)
    for engine in found.engines:
        engines.add_row(engine.name, engine.kind, ",".join(map(str, engine.cores)))
    extras = Table("extra", "here", "", box=None)
    for extra in found.extras:
        missing = f"without {', '.join(extra.missing)}" if extra.missing else ""
        extras.add_row(extra.name, "no" if extra.missing else "yes", missing)
    counters = Table("counter", "", "from", box=None)
    for row in found.counters:
        counters.add_row(row.name, str(row.source), escape(row.origin))
    for table in (machine_table, backends, engines, extras, counters):
        out.print(table)
        out.print()
    for remedy in found.remedies:
        out.print(f"for more: {remedy}", markup=False, highlight=False, soft_wrap=True)


def _cell(latency_s: float | None, fastest_s: float | None) -> str:
    if latency_s is None:
        return ""
    text = f"{latency_s * 1e3:.3f}"
    return f"[bold]{text}[/bold]" if latency_s == fastest_s else text


def show_standings(data: Mapping[str, Any]) -> None:
    """Best first: the oracle's time over that of each, geometric mean, and what else is told of
    them."""
    tested = f"{len(data['tested_on'])} {TESTED_ON[data['knob']]} nobody trained on"
    table = Table(title=f"share of the oracle on {tested}, in the simulator")
    table.add_column("player", no_wrap=True)
    rows = {
        name: told if isinstance(told, Mapping) else {"share": told}
        for name, told in data["standings"].items()
    }
    for column in next(iter(rows.values())):
        table.add_column(column, justify="right")
    for name, row in rows.items():
        table.add_row(name, *(f"{value:.3f}" for value in row.values()))
    Console().print(table)
    if "library" in data:
        _show_library(data["library"], data["library_noise"])


def _show_library(library: Mapping[str, Mapping[str, Any]], noise: float) -> None:
    title = f"the library on the regions recorded; twins differ by up to {noise - 1:.0%}"
    table = Table(title=title)
    for column in ("entry", "works on"):
        table.add_column(column, no_wrap=True)
    for column in ("measured on", "best on", "by at most", "built in"):
        table.add_column(column, justify="right")
    table.add_column("where")
    for name, told in library.items():
        most = f"{told['most']:.2f}x" if told["best_on"] else "-"
        counts = (str(told["measured_on"]), str(told["best_on"]), most)
        table.add_row(name, told["tag"], *counts, f"{told['build_s']:.2f} s", told["where"])
    Console().print(table)
