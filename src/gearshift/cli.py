"""The command line: results to stdout, progress to stderr, one JSON document with --json.

A recipe: arguments in, runtime calls, tables out.
"""

import json
import os
import signal
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any

import torch
import typer
from rich.console import Console
from rich.markup import escape
from rich.progress import Progress
from rich.table import Table

from gearshift.capture.load import capture, load
from gearshift.errors import GearshiftError, PlanError, UsageError, VerifyError
from gearshift.ir.measurement import Measurement
from gearshift.live import Run, Series, run_live
from gearshift.observe.store import machine_fields, versions_key
from gearshift.plan import Plan, Region, dumps, loads
from gearshift.plan.cut import by_scope
from gearshift.plan.text import to_data
from gearshift.profile import profile_regions
from gearshift.runtime import Runtime, adapt

SCHEMA_VERSION = 1
SLOWER_THAN_NOISE = 1.05
WIDE = 170

app = typer.Typer(
    help="Runs a PyTorch model and keeps changing how it runs, while its outputs stay the same.",
    no_args_is_help=True,
    add_completion=True,
    pretty_exceptions_enable=False,
)
progress = Console(stderr=True)

Model = Annotated[
    str,
    typer.Argument(
        help="A built-in name (resnet18, mobilenet_v2, minilm, mlp, lstm_tagger, unet, two_tower),"
        " package.module:factory, file.py:factory, a .pt2 or an .onnx file. A factory takes no"
        " arguments and returns (model, example_inputs)."
    ),
]
AsJson = Annotated[bool, typer.Option("--json", help="Print one JSON document and nothing else.")]
Backends = Annotated[
    str,
    typer.Option(help="Which backends to try, separated by commas; all that are here if empty."),
]


@app.command()
def run(
    model: Model = "resnet18",
    plan: Annotated[
        Path | None, typer.Option(help="Run this plan (JSON) and change nothing.")
    ] = None,
    export: Annotated[
        Path | None, typer.Option(help="Write the plan in force at the end to this file.")
    ] = None,
    seconds: Annotated[float, typer.Option(min=0.1, help="How long to run.")] = 20.0,
    policy: Annotated[
        str, typer.Option(help="Who decides: bandit, rules, proportional, keep; bandit if empty.")
    ] = "",
    as_json: AsJson = False,
) -> None:
    """Adapt a model and run it, now and then as it was; tell every decision, and compare.

    Example: gearshift run resnet18
    Example: gearshift run my_model.py:make --seconds 60 --export best.json
    """
    with _adapted(model, "keep" if plan else policy) as (runtime, example):
        if plan is not None:
            runtime.swap(_read_plan(runtime, plan), f"asked for: {plan.name}")
        _say("running")
        with _showing(runtime) as seen:
            result = run_live(runtime, *_call(example), seconds=seconds, seen=seen)
        if export is not None:
            _write(export, dumps(runtime.plan))
        data = _run_data(model, runtime, result)
        _print(data, as_json, lambda: _run_table(runtime, result))
        if result.vs_eager_at_end * SLOWER_THAN_NOISE < 1:
            eager = runtime.program.reference_name
            raise VerifyError(f"the plan is slower than {eager}: {result.vs_eager_at_end:.2f}x")


@app.command()
def profile(
    model: Model = "resnet18",
    depth: Annotated[
        int, typer.Option(min=0, help="Regions by so many names of the module path; 0: one region.")
    ] = 1,
    engine: Annotated[str, typer.Option(help="Where to run: caller, cpu:0, cpu:0-1.")] = "caller",
    seconds: Annotated[float, typer.Option(min=0.01, help="Per region and setting.")] = 0.3,
    backends: Backends = "eager,onnxruntime,openvino",
    as_json: AsJson = False,
) -> None:
    """Measure each region of a model under each setting of each backend.

    Example: gearshift profile minilm --depth 2
    """
    with _adapted(model, "keep") as (runtime, _):
        graph = runtime.program.graph
        plan = by_scope(graph, depth=depth, like=Region(ops=(), engine=engine))
        wanted = _wanted(backends)
        rewrites = [r for r in runtime.space.rewrites if not wanted or r.backend in wanted]
        with _progress(len(plan.regions)) as step:
            rows = list(profile_regions(runtime, plan, rewrites, seconds=seconds, progress=step))
        data = {"schema_version": SCHEMA_VERSION, "name": "profile", "model": model}
        data |= {"machine": machine(), "regions": [_measurement(row) for row in rows]}
        _print(data, as_json, lambda: _profile_table(plan, rows))


@app.command()
def bench(
    name: Annotated[str, typer.Argument(help="Which: overhead, runtime.")],
    model: Annotated[
        list[str] | None, typer.Option(help="May be given several times; default: a few built-in.")
    ] = None,
    seconds: Annotated[float, typer.Option(min=0.1, help="Per case, of overhead.")] = 5.0,
    seed: Annotated[int, typer.Option(help="What happens around the model, and when.")] = 0,
    quick: Annotated[
        bool, typer.Option(help="Two models, no steady neighbour, shorter: under 5 minutes.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Measure side by side on this machine; ratios above 1 mean Gearshift is better.

    Example: gearshift bench runtime --quick --seed 3
    Example: gearshift bench overhead --json
    """
    if name not in ("overhead", "runtime"):
        raise UsageError(f"no benchmark {name!r}; there are overhead, runtime")
    from gearshift.bench.show import show_overhead, show_runtime

    data: dict[str, Any] = {"schema_version": SCHEMA_VERSION, "name": name, "machine": machine()}
    if name == "overhead":
        data |= _bench_overhead(model, seconds)
        _print(data, as_json, lambda: show_overhead(data, _wide()))
        return
    data |= _bench_runtime(model, seed, quick)
    _print(data, as_json, lambda: show_runtime(data, _wide()))
    if data["void"]:
        noise = f"{abs(data['noise'] - 1):.1%}"
        raise GearshiftError(f"void: the same contender twice differed by {noise}; run it again")


def _bench_overhead(models: list[str] | None, seconds: float) -> dict[str, Any]:
    from gearshift.bench import overhead
    from gearshift.zoo import ZOO

    unknown = [m for m in models or () if m not in ZOO]
    if unknown:
        raise UsageError(f"no built-in model {unknown[0]!r}; there are {', '.join(ZOO)}")
    _say("measuring")
    return overhead.measure(models or ["mlp", "resnet18", "minilm"], seconds)


def _bench_runtime(models: list[str] | None, seed: int, quick: bool) -> dict[str, Any]:
    from gearshift.bench import runtime

    some = ["mlp", "resnet18"] if quick else ["mlp", "resnet18", "mobilenet_v2", "minilm"]
    for model in models or some:
        load(model)
    num_cores = len(os.sched_getaffinity(0))
    pace = runtime.QUICK if quick else runtime.Pace()
    return runtime.measure(models or some, seed=seed, num_cores=num_cores, pace=pace, say=_say)


class _adapted:
    """The runtime of a MODEL argument, closed at the end."""

    def __init__(self, model: str, policy: str) -> None:
        self.model, self.policy = model, policy

    def __enter__(self) -> tuple[Runtime, Any]:
        _say(f"loading {self.model}")
        sys.path.insert(0, os.getcwd())
        loaded, example = load(self.model)
        _say("capturing")
        program = capture(loaded, example, {})
        self.runtime = adapt(program, policy=self.policy or None)
        fragments = self.runtime.program.fragments
        if not fragments:
            raise UsageError(f"nothing of {self.model} can be captured: {program.uncaptured[0]}")
        return self.runtime, example if example is not None else fragments[0].example

    def __exit__(self, *exc: object) -> None:
        if hasattr(self, "runtime"):
            self.runtime.close()


def _call(example: Any) -> tuple[tuple[Any, ...], dict[str, Any]]:
    if isinstance(example, dict):
        return (), example
    return (example,) if isinstance(example, torch.Tensor) else tuple(example), {}


def _wanted(backends: str) -> list[str]:
    return [name.strip() for name in backends.split(",") if name.strip()]


def _read_plan(runtime: Runtime, path: Path) -> Plan:
    try:
        text = path.read_text()
    except OSError as error:
        raise PlanError(f"cannot read {str(path)!r}: {error.strerror}") from None
    return loads(text, runtime.program.graph)


def _write(path: Path, text: str) -> None:
    try:
        path.write_text(text + "\n")
    except OSError as error:
        raise UsageError(f"cannot write {str(path)!r}: {error.strerror}") from None


def machine() -> dict[str, Any]:
    versions = dict(entry.split("=", 1) for entry in versions_key().split(" "))
    return {**machine_fields(), "versions": versions}


def _run_data(model: str, runtime: Runtime, run: Run) -> dict[str, Any]:
    return {
        "schema_version": SCHEMA_VERSION,
        "name": "run",
        "model": model,
        "machine": machine(),
        "capture_s": runtime.program.capture_s,
        "uncaptured": list(runtime.program.uncaptured),
        "eager": _series(run.theirs),
        "gearshift": _series(run.ours),
        "gearshift_at_end": _series(run.ours.end()),
        "vs_eager": run.vs_eager,
        "vs_eager_at_end": run.vs_eager_at_end,
        "max_error": run.max_error,
        "plan": to_data(runtime.plan),
        "decisions": [asdict(decision) for decision in runtime.decisions],
        "memory_bytes": runtime.memory.total_bytes,
    }


def _series(series: Series) -> dict[str, Any]:
    return {
        "calls": len(series.call_s),
        "mean_s": series.mean_s,
        "median_s": series.median_s,
        "p95_s": series.p95_s,
    }


def _measurement(row: Measurement) -> dict[str, Any]:
    return {
        "region": row.region,
        "ops": list(row.ops),
        "engine": row.engine,
        "rewrite": row.rewrite,
        "latency_s": row.latency_s,
        "held_bytes": row.held_bytes.value,
        "max_error": row.max_error,
        "build_s": row.build_s,
    }


def _print(data: dict[str, Any], as_json: bool, show: Any) -> None:
    if as_json:
        print(json.dumps(data))
    else:
        show()


def _run_table(runtime: Runtime, run: Run) -> None:
    eager = runtime.program.reference_name
    table = Table(title=f"in turns with {eager}; largest difference {run.max_error:.1e}")
    table.add_column("", no_wrap=True)
    for column in ("calls", "mean ms", "median ms", "p95 ms", f"vs {eager}"):
        table.add_column(column, justify="right")
    rows = ((eager, run.theirs, 1.0), ("gearshift, all the time", run.ours, run.vs_eager))
    for name, series, ratio in (*rows, ("at the end", run.ours.end(), run.vs_eager_at_end)):
        times = [f"{s * 1e3:.2f}" for s in (series.mean_s, series.median_s, series.p95_s)]
        table.add_row(name, str(len(series.call_s)), *times, f"{ratio:.2f}x")
    out = Console()
    out.print(table)
    out.print(runtime.explain(), markup=False, soft_wrap=True, highlight=False)


def _profile_table(plan: Plan, rows: list[Measurement]) -> None:
    settings = list(dict.fromkeys(row.rewrite for row in rows))
    table = Table(title="ms per region")
    table.add_column("region", no_wrap=True)
    table.add_column("ops", justify="right")
    for setting in settings:
        table.add_column(setting, justify="right")
    for region in plan.regions:
        mine = {row.rewrite: row.latency_s for row in rows if row.ops == region.ops}
        fastest = min(mine.values(), default=None)
        cells = [_cell(mine.get(setting), fastest) for setting in settings]
        table.add_row(region.name, str(len(region.ops)), *cells)
    Console().print(table)


def _cell(latency_s: float | None, fastest_s: float | None) -> str:
    if latency_s is None:
        return "-"
    text = f"{latency_s * 1e3:.3f}"
    return f"[bold]{text}[/bold]" if latency_s == fastest_s else text


def _wide() -> Console:
    """Wide tables are not folded where nobody looks at a screen."""
    return Console() if sys.stdout.isatty() else Console(width=WIDE)


def _say(text: str) -> None:
    progress.print(f"{text} ...", style="dim", markup=False, highlight=False, soft_wrap=True)


@contextmanager
def _showing(runtime: Runtime) -> Iterator[Callable[[Run, float], None]]:
    """Every decision as it is made, and a bar where stderr is a terminal."""
    told = 0

    def decisions() -> None:
        nonlocal told
        for decision in runtime.decisions:
            if decision.number > told:
                progress.print(str(decision), markup=False, highlight=False, soft_wrap=True)
                told = decision.number

    with Progress(console=progress, transient=True, disable=not progress.is_terminal) as bar:
        task = bar.add_task("", total=1.0)

        def seen(run: Run, over: float) -> None:
            decisions()
            plan = runtime.plan.summary
            ours_s, theirs_s = run.ours.call_s[-1], run.theirs.median_s
            text = f"{plan}: {ours_s * 1e3:.1f} ms, eager {theirs_s * 1e3:.1f} ms"
            bar.update(task, description=escape(text), completed=over)

        yield seen


@contextmanager
def _progress(total: int) -> Iterator[Callable[[str], None]]:
    """A bar where stderr is a terminal, plain lines where it is not."""
    if not progress.is_terminal:
        yield _say
        return
    with Progress(console=progress, transient=True) as bar:
        task = bar.add_task("", total=total)

        def step(text: str) -> None:
            bar.update(task, description=escape(text))
            bar.advance(task)

        yield step


def main() -> None:
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # what was started is ended, too
    try:
        app()
    except GearshiftError as error:
        text = " ".join(str(error).split())
        progress.print(f"error: {text}", markup=False, highlight=False, soft_wrap=True)
        sys.exit(_exit_code(error))
    except KeyboardInterrupt:
        sys.exit(130)


def _exit_code(error: GearshiftError) -> int:
    if isinstance(error, UsageError):
        return 2
    return 3 if isinstance(error, VerifyError) else 1
