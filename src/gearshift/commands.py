"""What the commands do: arguments in, runtime calls, tables or one JSON document out.

A recipe. Must not know how arguments are written on the command line.
"""

import json
import os
import shlex
import sys
from collections.abc import Callable, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

from gearshift.act.verify import Tolerance
from gearshift.capture.load import capture, load
from gearshift.console import counting, note, say, showing, wide, working
from gearshift.decide.split.actions import NUM_ENGINES
from gearshift.errors import GearshiftError, PlanError, UsageError, VerifyError
from gearshift.ir.measurement import Measurement
from gearshift.live import Run, Series, run_live
from gearshift.observe.hal import measure_roofline
from gearshift.plan import Plan, Region, dumps, loads
from gearshift.plan.cut import formed
from gearshift.plan.library import options
from gearshift.plan.text import to_data
from gearshift.profile import (
    hot_ops,
    lines_of,
    profile_branches,
    profile_ops,
    profile_regions,
    roof_of,
)
from gearshift.results import write_json
from gearshift.runtime import Runtime, adapt
from gearshift.tables import show_doctor, show_profile, show_run, show_standings
from gearshift.tell import machine, machine_lines, story_of, today, write
from gearshift.view.profiled import profile_page
from gearshift.view.report import page
from gearshift.view.trace import trace as chrome_trace
from gearshift.zoo import ZOO

if TYPE_CHECKING:
    from gearshift.training import Training

SCHEMA_VERSION = 1
OPS_S = 1.0
"""For all ops of a model, one after the other, again and again."""
TRACED_CALLS = 50_000
SLOWER_THAN_NOISE = 1.05


def run(
    model: str,
    *,
    plan: Path | None,
    export: Path | None,
    seconds: float,
    policy: str,
    report: Path | None,
    no_report: bool,
    trace: Path | None,
    neighbour: bool,
    as_json: bool,
) -> None:
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
            runtime.remember(TRACED_CALLS)
        say("running")
        with showing(runtime, model, seconds, drawn=not as_json) as seen:
            args, kwargs = example
            result = run_live(
                runtime, args, kwargs, seconds=seconds, seen=seen, neighbour=neighbour
            )
        facts = {"command": shlex.join(["gearshift", *sys.argv[1:]])}
        story = story_of(runtime, model, run=result, facts=facts)
        in_force = runtime.plan
        unwritten = _write_all(
            ("plan", export, lambda: dumps(in_force) + "\n"),
            ("report", report, lambda: page(story)),
            ("trace", trace, lambda: json.dumps(chrome_trace(story))),
        )
        data = _run_data(model, runtime, in_force, result)
        _print(data, as_json, lambda: show_run(runtime, result))
        if unwritten is not None:
            raise unwritten
        if result.interrupted:
            raise KeyboardInterrupt
        if result.wrong:
            raise VerifyError(result.wrong)
        if result.vs_eager_at_end * SLOWER_THAN_NOISE < 1:
            eager = runtime.program.reference_name
            raise VerifyError(f"the plan is slower than {eager}: {result.vs_eager_at_end:.2f}x")


def doctor(*, as_json: bool) -> None:
    from gearshift.doctor import diagnose

    found = diagnose(say)
    data = {"schema_version": SCHEMA_VERSION, "name": "doctor", **asdict(found)}
    _print(data, as_json, lambda: show_doctor(found))
    if not found.sound:
        broken = [backend.name for backend in found.backends if not backend.works]
        raise GearshiftError(f"installed, but does not work: {', '.join(broken)}")


def profile(
    model: str,
    *,
    granularity: int,
    engine: str,
    seconds: float,
    backends: str,
    library: bool,
    report: Path | None,
    as_json: bool,
) -> None:
    if report is not None and (reason := _why_unwritable(report)) is not None:
        raise UsageError(reason)
    with _adapted(model, "keep") as (runtime, _):
        graph = runtime.program.graph
        plan = formed(graph, granularity=granularity, like=Region(ops=(), engine=engine))
        wanted = _wanted(backends)
        rewrites = [*runtime.space.rewrites, *(options(runtime.space) if library else ())]
        rewrites = [r for r in rewrites if not wanted or r.backend in wanted]
        with working("measuring the machine's roofline"):
            roofline = measure_roofline()
        with working(f"running {len(graph.ops)} ops one by one"):
            ops = profile_ops(runtime, seconds=OPS_S)
        with counting(len(plan.regions)) as step:
            rows = list(profile_regions(runtime, plan, rewrites, seconds=seconds, progress=step))
        lines = lines_of(profile_branches(runtime, ops, roofline, depth=granularity), rows)
        data: dict[str, Any] = {
            "schema_version": SCHEMA_VERSION,
            "name": "profile",
            "model": model,
        }
        data |= {"machine": machine(), "regions": [_measurement(row) for row in rows]}
        data |= {"roofline": roofline.to_dict(), "hierarchy": [asdict(line) for line in lines]}
        data |= {"ops": [asdict(reading) for reading in ops.values()]}
        facts = {
            "command": shlex.join(["gearshift", *sys.argv[1:]]),
            **machine_lines(data["machine"]),
        }
        hot = hot_ops(graph, ops)
        unwritten = _write_all(
            ("report", report, lambda: profile_page(model, roof_of(roofline), lines, hot, facts))
        )
        _print(data, as_json, lambda: show_profile(lines))
        if unwritten is not None:
            raise unwritten


def bench(
    name: str, models: list[str] | None, *, seconds: float, seed: int, quick: bool, as_json: bool
) -> None:
    from gearshift.bench.show import show_overhead, show_regions, show_rnn, show_runtime, show_split

    data: dict[str, Any] = {"schema_version": SCHEMA_VERSION, "name": name}
    data |= {"date": today(), "machine": machine()}
    if name == "overhead":
        data |= _bench_overhead(models, seconds)
        _print(data, as_json, lambda: show_overhead(data, wide()))
        return
    if name == "split":
        data |= _bench_split(models, seed, quick)
        _print(data, as_json, lambda: show_split(data, wide()))
    elif name == "rnn":
        data |= _bench_rnn(models, seed, quick)
        _print(data, as_json, lambda: show_rnn(data, wide()))
    elif name == "regions":
        data |= _bench_regions(models, quick)
        _print(data, as_json, lambda: show_regions(data, wide()))
    else:
        data |= _bench_runtime(models, seed, quick)
        _print(data, as_json, lambda: show_runtime(data, wide()))
    if data["void"]:
        raise GearshiftError(_why_void(data["noise"]))
    cases = (*data["cases"], *data.get("models", ()))
    worst = max((case.get("max_error") or 0.0 for case in cases), default=0.0)
    if worst > Tolerance().single:
        raise VerifyError(f"outputs differed from the model's by {worst:.2g}")


def _why_void(noise: float | None) -> str:
    if noise is None:
        return "every case failed"
    return f"void: the same contender twice differed by {abs(noise - 1):.1%}; run it again"


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
    _refuse_odd_inputs("runtime", models or some)
    cores = sorted(os.sched_getaffinity(0))
    pace = runtime.QUICK if quick else runtime.Pace()
    return runtime.measure(models or some, seed=seed, cores=cores, pace=pace, say=say)


def _refuse_odd_inputs(bench: str, models: Sequence[str]) -> None:
    """Contenders call them with tensors in a row."""
    sys.path.insert(0, os.getcwd())
    for model in models:
        _, example = load(model)
        if not isinstance(example, torch.Tensor | tuple | list):
            raise UsageError(
                f"{model}: bench {bench} takes a model in torch whose example inputs are a tensor"
                " or a tuple of them; give one as file.py:factory"
            )


def _bench_regions(models: list[str] | None, quick: bool) -> dict[str, Any]:
    from gearshift.bench import regions

    _refuse_odd_inputs("regions", models or ())
    pace = regions.QUICK if quick else regions.Pace()
    return regions.measure(models, pace=pace, say=say)


def _bench_rnn(models: list[str] | None, seed: int, quick: bool) -> dict[str, Any]:
    from gearshift.bench import rnn
    from gearshift.bench.rnn_models import NAME

    odd = [model for model in models or () if NAME.fullmatch(model) is None]
    if odd:
        raise UsageError(f"no recurrent model {odd[0]!r}; one is lstm_l2_h256_t100_b8_uniform")
    pace = rnn.QUICK if quick else rnn.Pace()
    pace = replace(pace, cases=tuple(models)) if models else pace
    return rnn.measure(seed=seed, cores=sorted(os.sched_getaffinity(0)), pace=pace, say=say)


def _bench_split(models: list[str] | None, seed: int, quick: bool) -> dict[str, Any]:
    from gearshift.bench import split

    cores = sorted(os.sched_getaffinity(0))
    if len(cores) < NUM_ENGINES:
        raise UsageError("bench split divides over two cores, and there is only one")
    pace = split.QUICK if quick else split.Pace()
    if models:
        _refuse_odd_inputs("split", models)
        pace = pace.of(models)
    return split.measure(seed=seed, cores=cores, pace=pace, say=say)


def train(training: "Training", *, as_json: bool) -> None:
    from gearshift.training import train_agent

    found = train_agent(training)
    data = {"schema_version": SCHEMA_VERSION, "name": "train", "knob": training.knob, **found}
    _print(data, as_json, lambda: show_standings(data))


class _adapted:
    """The runtime of a MODEL argument, closed at the end."""

    def __init__(self, model: str, policy: str) -> None:
        self.model, self.policy = model, policy

    def __enter__(self) -> tuple[Runtime, tuple[tuple[Any, ...], dict[str, Any]]]:
        sys.path.insert(0, os.getcwd())
        with working(f"loading {self.model}"):
            loaded, example = load(self.model)
        with working("capturing"):
            program = capture(loaded, example, {})
        with working("starting"):
            self.runtime = adapt(program, policy=self.policy or None)
        if not program.fragments:
            raise UsageError(f"nothing of {self.model} can be captured: {program.uncaptured[0]}")
        return self.runtime, program.example

    def __exit__(self, *exc: object) -> None:
        if hasattr(self, "runtime"):
            self.runtime.close()


def _wanted(backends: str) -> list[str]:
    return [name.strip() for name in backends.split(",") if name.strip()]


def _read_plan(runtime: Runtime, path: Path) -> Plan:
    try:
        text = path.read_text()
    except OSError as error:
        raise PlanError(f"cannot read {str(path)!r}: {error.strerror}") from None
    except UnicodeDecodeError:
        raise PlanError(f"{str(path)!r} is no text; a plan is JSON") from None
    return loads(text, runtime.program.graph)


def _why_unwritable(path: Path) -> str | None:
    """To be known before the run, not after it."""
    if os.path.isdir(path):
        return f"cannot write {str(path)!r}: it is a folder"
    if not os.path.isdir(path.parent):
        return f"cannot write {str(path)!r}: there is no folder {str(path.parent)!r}"
    if not os.access(path if os.path.exists(path) else path.parent, os.W_OK):
        return f"cannot write {str(path)!r}: permission denied"
    return None


def _usual_report() -> Path | None:
    """Nobody asked for it: where it cannot be written, the run goes on without."""
    path = Path("report.html")
    if (reason := _why_unwritable(path)) is None:
        return path
    note(f"no report: {reason}; give --report FILE")
    return None


def _write_all(*files: tuple[str, Path | None, Callable[[], str]]) -> UsageError | None:
    """One that cannot be written does not keep the others from it; the first error."""
    failed: list[UsageError] = []
    for what, path, made in files:
        if path is None:
            continue
        try:
            write(path, made())
            note(f"{what}: {path}")
        except UsageError as error:
            failed.append(error)
    return failed[0] if failed else None


def _run_data(model: str, runtime: Runtime, plan: Plan, run: Run) -> dict[str, Any]:
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
        "plan": to_data(plan),
        "decisions": [asdict(decision) for decision in runtime.decisions],
        "memory_bytes": runtime.memory.total_bytes,
    }


def _series(series: Series) -> dict[str, Any]:
    return {
        "calls": series.num_calls,
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
        write_json(data)
    else:
        show()
