"""The command line: results to stdout, progress to stderr, one JSON document with --json.

A recipe: arguments in, runtime calls, tables out.
"""

import json
import os
import shlex
import signal
import sys
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any

import torch
import typer

from gearshift.capture.load import capture, load
from gearshift.console import counting, note, progress, say, showing, wide, working
from gearshift.decide.mind import POLICIES
from gearshift.errors import GearshiftError, PlanError, UsageError, VerifyError
from gearshift.ir.measurement import Measurement
from gearshift.live import Run, Series, run_live
from gearshift.plan import Plan, Region, dumps, loads
from gearshift.plan.cut import by_scope
from gearshift.plan.text import to_data
from gearshift.profile import profile_regions
from gearshift.runtime import Runtime, adapt
from gearshift.tables import show_doctor, show_profile, show_run
from gearshift.tell import machine, story_of, write
from gearshift.view.report import page
from gearshift.view.trace import trace as chrome_trace
from gearshift.zoo import ZOO

SCHEMA_VERSION = 1
TRACED_SPANS = 200_000
SLOWER_THAN_NOISE = 1.05
BENCHMARKS = ("overhead", "runtime")

app = typer.Typer(
    help="Runs a PyTorch model and keeps changing how it runs, while its outputs stay the same.",
    no_args_is_help=True,
    add_completion=True,
    pretty_exceptions_enable=False,
)

Model = Annotated[
    str,
    typer.Argument(
        help="A built-in name (resnet18, mobilenet_v2, minilm, mlp, lstm_tagger, unet, two_tower),"
        " package.module:factory, file.py:factory, a .pt2 or an .onnx file. A factory takes no"
        " arguments and returns (model, example_inputs).",
        autocompletion=lambda: list(ZOO),
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
        str,
        typer.Option(
            help="Who decides: bandit, rules, proportional, keep; bandit if empty.",
            autocompletion=lambda: list(POLICIES),
        ),
    ] = "",
    report: Annotated[
        Path | None,
        typer.Option(help="Write what happened as one HTML page to this file, not report.html."),
    ] = None,
    no_report: Annotated[bool, typer.Option("--no-report", help="Write no page.")] = False,
    trace: Annotated[
        Path | None, typer.Option(help="Write a Chrome trace (JSON), to open in Perfetto.")
    ] = None,
    neighbour: Annotated[
        bool, typer.Option("--neighbour", help="Have a busy process come and go on the last core.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Adapt a model and run it, now and then as it was; show it live, tell what was decided.

    Example: gearshift run resnet18 --neighbour --seconds 40
    Example: gearshift run my_model.py:make --trace trace.json --export best.json
    """
    for path in (export, report, trace):
        if path is not None and (reason := _why_unwritable(path)):
            raise UsageError(f"{reason}; name another file")
    if report is not None and no_report:
        raise UsageError("--report and --no-report exclude each other")
    if report is None and not no_report:
        report = _usual_report()
    with _adapted(model, "keep" if plan else policy) as (runtime, example):
        if plan is not None:
            with working(f"building {plan.name}"):
                runtime.swap(_read_plan(runtime, plan), f"asked for: {plan.name}")
        if trace is not None:
            runtime.remember(max(100, TRACED_SPANS // len(runtime.plan.regions)))
        say("running")
        with showing(runtime, model, seconds, drawn=not as_json) as seen:
            args, kwargs = _call(example)
            result = run_live(
                runtime, args, kwargs, seconds=seconds, seen=seen, neighbour=neighbour
            )
        if export is not None:
            write(export, dumps(runtime.plan) + "\n")
        facts = {"command": shlex.join(["gearshift", *sys.argv[1:]])}
        story = story_of(runtime, model, run=result, facts=facts)
        if report is not None:
            write(report, page(story))
            note(f"report: {report}")
        if trace is not None:
            write(trace, json.dumps(chrome_trace(story)))
            note(f"trace: {trace}")
        data = _run_data(model, runtime, result)
        _print(data, as_json, lambda: show_run(runtime, result))
        if result.interrupted:
            raise KeyboardInterrupt
        if result.vs_eager_at_end * SLOWER_THAN_NOISE < 1:
            eager = runtime.program.reference_name
            raise VerifyError(f"the plan is slower than {eager}: {result.vs_eager_at_end:.2f}x")


@app.command()
def doctor(as_json: AsJson = False) -> None:
    """Show what this machine can measure and run, try each backend, and tell what is missing.

    Example: gearshift doctor
    Example: gearshift doctor --json
    """
    from gearshift.doctor import diagnose

    found = diagnose(say)
    data = {"schema_version": SCHEMA_VERSION, "name": "doctor", **asdict(found)}
    _print(data, as_json, lambda: show_doctor(found))
    if not found.sound:
        broken = [backend.name for backend in found.backends if not backend.works]
        raise GearshiftError(f"installed, but does not work: {', '.join(broken)}")


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
        with counting(len(plan.regions)) as step:
            rows = list(profile_regions(runtime, plan, rewrites, seconds=seconds, progress=step))
        data = {"schema_version": SCHEMA_VERSION, "name": "profile", "model": model}
        data |= {"machine": machine(), "regions": [_measurement(row) for row in rows]}
        _print(data, as_json, lambda: show_profile(plan, rows))


@app.command()
def bench(
    name: Annotated[
        str,
        typer.Argument(
            help=f"Which: {', '.join(BENCHMARKS)}.", autocompletion=lambda: list(BENCHMARKS)
        ),
    ],
    model: Annotated[
        list[str] | None, typer.Option(help="May be given several times; default: a few built-in.")
    ] = None,
    seconds: Annotated[float, typer.Option(min=0.1, help="Per case, of overhead.")] = 5.0,
    seed: Annotated[int, typer.Option(help="What happens around the model, and when.")] = 0,
    quick: Annotated[
        bool, typer.Option(help="Two models, no steady neighbour, shorter: about 5 minutes.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Measure side by side on this machine; ratios above 1 mean Gearshift is better.

    Example: gearshift bench runtime --quick --seed 3
    Example: gearshift bench overhead --json
    """
    if name not in BENCHMARKS:
        raise UsageError(f"no benchmark {name!r}; there are {', '.join(BENCHMARKS)}")
    from gearshift.bench.show import show_overhead, show_runtime

    data: dict[str, Any] = {"schema_version": SCHEMA_VERSION, "name": name}
    data["machine"] = machine()
    if name == "overhead":
        data |= _bench_overhead(model, seconds)
        _print(data, as_json, lambda: show_overhead(data, wide()))
        return
    data |= _bench_runtime(model, seed, quick)
    _print(data, as_json, lambda: show_runtime(data, wide()))
    if data["void"]:
        noise = f"{abs(data['noise'] - 1):.1%}"
        raise GearshiftError(f"void: the same contender twice differed by {noise}; run it again")


def _bench_overhead(models: list[str] | None, seconds: float) -> dict[str, Any]:
    from gearshift.bench import overhead

    unknown = [m for m in models or () if m not in ZOO]
    if unknown:
        raise UsageError(f"no built-in model {unknown[0]!r}; there are {', '.join(ZOO)}")
    say("measuring")
    return overhead.measure(models or ["mlp", "resnet18", "minilm"], seconds)


def _bench_runtime(models: list[str] | None, seed: int, quick: bool) -> dict[str, Any]:
    from gearshift.bench import runtime

    some = ["mlp", "resnet18"] if quick else ["mlp", "resnet18", "mobilenet_v2", "minilm"]
    for model in models or some:
        load(model)
    num_cores = len(os.sched_getaffinity(0))
    pace = runtime.QUICK if quick else runtime.Pace()
    return runtime.measure(models or some, seed=seed, num_cores=num_cores, pace=pace, say=say)


class _adapted:
    """The runtime of a MODEL argument, closed at the end."""

    def __init__(self, model: str, policy: str) -> None:
        self.model, self.policy = model, policy

    def __enter__(self) -> tuple[Runtime, Any]:
        sys.path.insert(0, os.getcwd())
        with working(f"loading {self.model}"):
            loaded, example = load(self.model)
        with working("capturing"):
            program = capture(loaded, example, {})
        with working("starting"):
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


def _why_unwritable(path: Path) -> str | None:
    """To be known before the run, not after it."""
    if path.is_dir():
        return f"cannot write {str(path)!r}: it is a folder"
    if not path.parent.is_dir():
        return f"cannot write {str(path)!r}: there is no folder {str(path.parent)!r}"
    if not os.access(path if path.exists() else path.parent, os.W_OK):
        return f"cannot write {str(path)!r}: permission denied"
    return None


def _usual_report() -> Path | None:
    """Nobody asked for it: where it cannot be written, the run goes on without."""
    path = Path("report.html")
    if (reason := _why_unwritable(path)) is None:
        return path
    note(f"no report: {reason}; give --report FILE")
    return None


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
