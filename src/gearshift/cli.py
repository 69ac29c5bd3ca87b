"""The command line: results to stdout, progress to stderr, one JSON document with --json.

A recipe: arguments in, runtime calls, tables out.
"""

import json
import os
import platform
import signal
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
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
from gearshift.plan import Plan, Region, diff, dumps, loads
from gearshift.plan.cut import by_scope
from gearshift.plan.plan import whole
from gearshift.plan.text import to_data
from gearshift.profile import PlanResult, compare_plans, profile_regions
from gearshift.runtime import Runtime, adapt

SCHEMA_VERSION = 1
SLOWER_THAN_NOISE = 1.05

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
        Path | None, typer.Option(help="Run this plan (JSON) instead of trying each backend.")
    ] = None,
    export: Annotated[
        Path | None, typer.Option(help="Write the plan that served best to this file.")
    ] = None,
    seconds: Annotated[float, typer.Option(min=0.1, help="How long to measure.")] = 10.0,
    backends: Backends = "",
    as_json: AsJson = False,
) -> None:
    """Adapt a model, run it, and compare with eager, call by call in turns.

    Example: gearshift run resnet18
    Example: gearshift run my_model.py:make --backends onnxruntime,openvino --export best.json
    """
    with _adapted(model) as (runtime, example):
        plans = _given_plan(runtime, plan) if plan else _backend_plans(runtime, _wanted(backends))
        eager = runtime.program.reference_name
        with _progress(len(plans) + 2) as step:
            results = compare_plans(
                runtime,
                {eager: runtime.plan, **plans},
                *_call(example),
                seconds=seconds,
                progress=step,
                strict=plan is not None,
            )
        measured = [result for result in results if result.latencies_s]
        best = measured[-1] if plan else min(measured, key=lambda result: result.median_s)
        runtime.swap(best.plan, f"fastest of {len(measured)} measured")
        if export is not None:
            _write(export, dumps(best.plan))
        data = _run_data(model, runtime, results, best)
        _print(data, as_json, lambda: _run_table(runtime, results, best, eager))
        if data["vs_eager"] * SLOWER_THAN_NOISE < 1:
            raise VerifyError(f"the plan is slower than {eager}: {data['vs_eager']:.2f}x")


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
    with _adapted(model) as (runtime, _):
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
    quick: Annotated[bool, typer.Option(help="At most 5 minutes: two models, shorter.")] = False,
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
        _print(data, as_json, lambda: show_overhead(data, Console()))
        return
    data |= _bench_runtime(model, seed, quick)
    _print(data, as_json, lambda: show_runtime(data, Console()))
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

    def __init__(self, model: str) -> None:
        self.model = model

    def __enter__(self) -> tuple[Runtime, Any]:
        _say(f"loading {self.model}")
        sys.path.insert(0, os.getcwd())
        loaded, example = load(self.model)
        _say("capturing")
        program = capture(loaded, example, {})
        self.runtime = adapt(program)
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


def _given_plan(runtime: Runtime, path: Path) -> dict[str, Plan]:
    try:
        text = path.read_text()
    except OSError as error:
        raise PlanError(f"cannot read {str(path)!r}: {error.strerror}") from None
    return {path.stem: loads(text, runtime.program.graph)}


def _backend_plans(runtime: Runtime, wanted: list[str]) -> dict[str, Plan]:
    space = runtime.space
    unknown = [name for name in wanted if name not in space.runnable]
    if unknown:
        known = ", ".join(space.runnable)
        raise UsageError(f"no backend {unknown[0]!r} here for this model; there are {known}")
    rewrites = [r for r in space.rewrites if r.backend != "eager"]
    rewrites = [r for r in rewrites if not wanted or r.backend in wanted]
    every = frozenset(space.graph.position)
    return {
        str(r): whole(space.graph, rewrite=r)
        for r in rewrites
        if every <= space.runnable[r.backend]
    }


def _write(path: Path, text: str) -> None:
    try:
        path.write_text(text + "\n")
    except OSError as error:
        raise UsageError(f"cannot write {str(path)!r}: {error.strerror}") from None


def machine() -> dict[str, Any]:
    versions = {"python": platform.python_version(), "torch": torch.__version__}
    for name in ("onnxruntime", "openvino"):
        module = sys.modules.get(name)
        versions |= {name: module.__version__} if module is not None else {}
    return {"cores": os.cpu_count(), "cpu": _cpu_name(), "versions": versions}


def _cpu_name() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.processor()
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.machine()


def _run_data(
    model: str, runtime: Runtime, results: list[PlanResult], best: PlanResult
) -> dict[str, Any]:
    eager = results[0]
    return {
        "schema_version": SCHEMA_VERSION,
        "name": "run",
        "model": model,
        "machine": machine(),
        "capture_s": runtime.program.capture_s,
        "uncaptured": list(runtime.program.uncaptured),
        "results": [_result(result, eager) for result in results],
        "plan": to_data(best.plan),
        "vs_eager": eager.median_s / best.median_s,
        "memory_bytes": runtime.memory.total_bytes,
    }


def _result(result: PlanResult, eager: PlanResult) -> dict[str, Any]:
    if result.refused is not None:
        return {"name": result.name, "refused": result.refused}
    return {
        "name": result.name,
        "median_s": result.median_s,
        "p95_s": result.p95_s,
        "calls": len(result.latencies_s),
        "vs_eager": eager.median_s / result.median_s,
        "max_error": result.max_error,
        "held_bytes": result.held_bytes,
        "build_s": result.build_s,
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


def _run_table(runtime: Runtime, results: list[PlanResult], best: PlanResult, eager: str) -> None:
    table = Table(title=f"against {eager}, taking turns")
    table.add_column("plan", no_wrap=True)
    for column in ("median ms", "p95 ms", f"vs {eager}", "error", "MB", "build s"):
        table.add_column(column, justify="right")
    for result in results:
        if result.refused is not None:
            table.add_row(result.name, "refused", "", "", "", "", "")
            continue
        table.add_row(
            f"{result.name} *" if result is best else result.name,
            f"{result.median_s * 1e3:.2f}",
            f"{result.p95_s * 1e3:.2f}",
            f"{results[0].median_s / result.median_s:.2f}x",
            f"{result.max_error:.1e}",
            f"{result.held_bytes / 1e6:.1f}",
            f"{result.build_s:.1f}",
        )
    out = Console()
    out.print(table)
    for result in results:
        if result.refused is not None:
            out.print(f"{result.name} was refused: {result.refused}", markup=False, soft_wrap=True)
    changes = diff(results[0].plan, best.plan)
    if changes:
        out.print(f"changed against {eager}:\n{changes}\n", markup=False, soft_wrap=True)
    out.print(runtime.explain(), markup=False, soft_wrap=True)


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


def _say(text: str) -> None:
    progress.print(f"{text} ...", style="dim", markup=False, highlight=False, soft_wrap=True)


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
