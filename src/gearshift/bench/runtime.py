"""`gearshift bench runtime`: the adapting runtime beside its peers, while neighbours come and go.

Static settings are measured in slices before and after Gearshift's own stretch of each phase and
composed into the trace; Gearshift lives through it for real, once cold and once with what it
learned. The best of many is chosen on odd slices and reported on even ones.
"""

import statistics
import tempfile
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from itertools import accumulate
from typing import Any

from gearshift.bench.arena import Contender, Setting
from gearshift.bench.neighbours import busy
from gearshift.bench.traces import Phase, traces

Say = Callable[[str], None]
PEERS = {
    "eager": Setting(kind="eager"),
    "torch.compile": Setting(kind="torch.compile"),
    "onnxruntime": Setting(kind="onnxruntime"),
    "openvino": Setting(kind="openvino"),
}
TWICE = "onnxruntime again"
NEAR = 1.1
"""Within so much of the oracle's time a plan is as good as its."""
FEW = 5
RATIOS = ("vs_eager", "vs_best_peer", "vs_best_static", "of_oracle")
TAILS = ("p95_vs_eager", "p95_vs_best_static")


@dataclass(frozen=True, slots=True, kw_only=True)
class Pace:
    phase_s: float = 12.0
    slice_s: float = 1.0
    slices: int = 4
    """Of each static setting in each phase; half of them before Gearshift's stretch."""


QUICK = Pace(phase_s=5.0, slice_s=0.5, slices=2)


@dataclass(slots=True)
class Stretch:
    """What one contender did in one phase, slice by slice."""

    slices: list[list[float]] = field(default_factory=list)
    cpu_s: float = 0.0
    max_error: float = 0.0

    def add(self, answer: Mapping[str, Any]) -> None:
        self.slices.append(answer["call_s"])
        self.cpu_s += answer["cpu_s"]
        self.max_error = max(self.max_error, answer["max_error"])

    def calls(self, parity: int | None = None) -> list[float]:
        chosen = self.slices if parity is None else self.slices[parity::2]
        return [call_s for part in chosen for call_s in part]


def settings(num_cores: int) -> dict[str, Setting]:
    """The peers as they come, and every other static setting."""
    grid = {"eager x1": Setting(kind="eager", threads=1)}
    grid["openvino x1"] = Setting(kind="openvino", threads=1)
    for threads in sorted({1, num_cores}):
        for spin in (False, True):
            if threads > 1 or not spin:
                name = f"onnxruntime x{threads}{' spin' if spin else ''}"
                grid[name] = Setting(kind="onnxruntime", threads=threads, spin=spin)
    return {**PEERS, **grid, TWICE: PEERS["onnxruntime"]}


def measure(
    models: Sequence[str], *, seed: int, num_cores: int, pace: Pace, say: Say
) -> dict[str, Any]:
    cases: list[dict[str, Any]] = []
    doubles: list[float] = []
    for model in models:
        with ExitStack() as stack, tempfile.TemporaryDirectory(prefix="gearshift-bench-") as home:
            static = _start_all(model, settings(num_cores), stack, say)
            for temperature in ("cold", "warm"):
                say(f"{model}: starting gearshift, {temperature}")
                with ExitStack() as mine:
                    setting = Setting(kind="gearshift", warm_up=0)
                    gearshift = _start(model, setting, mine, {"GEARSHIFT_HOME": home})
                    for name, phases in traces(seed, num_cores, pace.phase_s).items():
                        say(f"{model}: {name}, {temperature}")
                        case = _live_through(phases, gearshift, static, pace)
                        about = {"model": model, "trace": name, "start": temperature}
                        doubles.append(case.pop("noise"))
                        ready_s = {n: c.ready_s for n, c in static.items()}
                        cases.append({"case": about, **case, "ready_s": ready_s})
    return {
        "seed": seed,
        "noise": statistics.geometric_mean(doubles),
        "cases": cases,
        "summary": _summary(cases),
    }


def _start_all(
    model: str, wanted: Mapping[str, Setting], stack: ExitStack, say: Say
) -> dict[str, Contender]:
    started = {}
    for name, setting in wanted.items():
        say(f"{model}: starting {name}")
        started[name] = _start(model, setting, stack, {})
    return started


def _start(
    model: str, setting: Setting, stack: ExitStack, environment: Mapping[str, str]
) -> Contender:
    contender = Contender(model, setting, environment)
    stack.callback(contender.close)
    return contender


def _live_through(
    phases: Sequence[Phase], gearshift: Contender, static: Mapping[str, Contender], pace: Pace
) -> dict[str, Any]:
    ours: list[Stretch] = []
    theirs: list[dict[str, Stretch]] = []
    decisions: list[str] = []
    plans: list[str] = []
    for phase in phases:
        with busy(phase.neighbours):
            stretches = {name: Stretch() for name in static}
            _take_slices(stretches, static, pace)
            mine = Stretch()
            answer = gearshift.run(phase.seconds)
            mine.add(answer)
            decisions += answer["decisions"]
            plans.append(answer["plan"])
            _take_slices(stretches, static, pace)
        ours.append(mine)
        theirs.append(stretches)
    case = _case(phases, ours, theirs)
    return {**case, "plans": plans, "decisions": decisions}


def _take_slices(
    stretches: dict[str, Stretch], static: Mapping[str, Contender], pace: Pace
) -> None:
    names = list(static)
    for turn in range(pace.slices // 2):
        for name in names[turn:] + names[:turn]:
            stretches[name].add(static[name].run(pace.slice_s))


def _case(
    phases: Sequence[Phase], ours: Sequence[Stretch], theirs: Sequence[Mapping[str, Stretch]]
) -> dict[str, Any]:
    names = [name for name in theirs[0] if name != TWICE]
    picked = {name: _composed(phases, [t[name].calls(0) for t in theirs]) for name in names}
    told = {name: _composed(phases, [t[name].calls(1) for t in theirs]) for name in names}
    best_static = min(picked, key=lambda name: picked[name])
    best_peer = min(PEERS, key=lambda name: picked[name])
    oracles = [_fastest({name: t[name].calls(0) for name in names}) for t in theirs]
    oracle_calls = [t[name].calls(1) for t, name in zip(theirs, oracles, strict=True)]
    oracle_s = _composed(phases, oracle_calls)
    our_calls = [stretch.calls() for stretch in ours]
    our_s = _mean([call_s for calls in our_calls for call_s in calls])
    our_p95 = _quantile([(call_s, 1.0) for calls in our_calls for call_s in calls])
    eager_p95 = _static_p95(phases, [t["eager"].calls() for t in theirs])
    best_p95 = _static_p95(phases, [t[best_static].calls() for t in theirs])
    twice = _composed(phases, [t[TWICE].calls() for t in theirs])
    once = _composed(phases, [t["onnxruntime"].calls() for t in theirs])
    num_calls = sum(map(len, our_calls))
    return {
        "gearshift_s": our_s,
        "peers_s": {name: told[name] for name in PEERS},
        "static_s": told,
        "best_static": best_static,
        "best_static_s": told[best_static],
        "oracle_s": oracle_s,
        "vs_eager": told["eager"] / our_s,
        "vs_best_peer": told[best_peer] / our_s,
        "vs_best_static": told[best_static] / our_s,
        "of_oracle": oracle_s / our_s,
        "p95_vs_eager": eager_p95 / our_p95,
        "p95_vs_best_static": best_p95 / our_p95,
        "cpu_s_per_call": sum(stretch.cpu_s for stretch in ours) / num_calls,
        "peer_cpu_s_per_call": _cpu(theirs, best_peer),
        "max_error": max(stretch.max_error for stretch in ours),
        "noise": once / twice,
        "phases": [
            {
                "neighbours": [str(n) for n in phase.neighbours],
                "seconds": phase.seconds,
                "gearshift_s": _mean(calls),
                "oracle": oracle,
                "oracle_s": _mean(oracle_call),
                "settled": _settled(calls, _mean(oracle_call)),
            }
            for phase, calls, oracle, oracle_call in zip(
                phases, our_calls, oracles, oracle_calls, strict=True
            )
        ],
    }


def _fastest(calls: Mapping[str, Sequence[float]]) -> str:
    return min(calls, key=lambda name: _mean(calls[name]))


def _mean(values: Sequence[float]) -> float:
    return sum(values) / len(values)


def _composed(phases: Sequence[Phase], calls: Sequence[Sequence[float]]) -> float:
    """Mean time per call over the trace: as many calls as fit into each phase."""
    numbers = [phase.seconds / _mean(part) for phase, part in zip(phases, calls, strict=True)]
    return sum(phase.seconds for phase in phases) / sum(numbers)


def _static_p95(phases: Sequence[Phase], calls: Sequence[Sequence[float]]) -> float:
    """Over all calls of the trace, as many of each phase as fit into it."""
    weighted = [
        (call_s, phase.seconds / _mean(part) / len(part))
        for phase, part in zip(phases, calls, strict=True)
        for call_s in part
    ]
    return _quantile(weighted)


def _quantile(weighted: list[tuple[float, float]], share: float = 0.95) -> float:
    ordered = sorted(weighted)
    limit = share * sum(weight for _, weight in ordered)
    sums = accumulate(weight for _, weight in ordered)
    return next(v for (v, _), total in zip(ordered, sums, strict=True) if total >= limit)


def _cpu(theirs: Sequence[Mapping[str, Stretch]], name: str) -> float:
    return sum(t[name].cpu_s for t in theirs) / sum(len(t[name].calls()) for t in theirs)


def _settled(calls: Sequence[float], oracle_s: float) -> dict[str, float] | None:
    """After how many calls and seconds a few in a row were near the oracle's; None if never."""
    for index in range(len(calls) - FEW + 1):
        if statistics.median(calls[index : index + FEW]) <= NEAR * oracle_s:
            return {"calls": index, "seconds": sum(calls[:index])}
    return None


def _summary(cases: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    summary: dict[str, Any] = {}
    for case in cases:
        group = f"{case['case']['trace']}, {case['case']['start']}"
        summary.setdefault(group, []).append(case)
    return {
        group: {
            ratio: {
                "geometric_mean": statistics.geometric_mean([m[ratio] for m in members]),
                "minimum": min(m[ratio] for m in members),
            }
            for ratio in (*RATIOS, *TAILS)
        }
        for group, members in summary.items()
    }
