"""What was measured, as the ratios a benchmark prints: above 1, Gearshift is better.

Must not know how anything was measured. The best of many is chosen on odd slices and told on even
ones, and the other way round, and the two are averaged: the best of noise would look better than it
is.
"""

import statistics
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import accumulate
from typing import Any

from gearshift.bench.traces import Phase
from gearshift.plan.decision import TRIAL

PEERS = ("eager", "torch.compile", "onnxruntime", "openvino")
TWICE = "onnxruntime again"
NEAR = 1.1
"""Within so much of the oracle's time a plan is as good as its."""
ENOUGH = 20
"""Calls that a plan of Gearshift's own must have served in a phase to be the oracle's choice."""
RATIOS = (
    "vs_eager",
    "vs_best_peer",
    "vs_best_static",
    "of_oracle",
    "p95_vs_eager",
    "p95_vs_best_static",
    "cpu_vs_best_peer",
)


@dataclass(slots=True)
class Slices:
    """What one static setting did under one condition."""

    call_s: list[list[float]] = field(default_factory=list)
    cpu_s: float = 0.0

    def add(self, answer: Mapping[str, Any]) -> None:
        self.call_s.append(answer["call_s"])
        self.cpu_s += answer["cpu_s"]

    def calls(self, parity: int | None = None) -> list[float]:
        chosen = self.call_s if parity is None else self.call_s[parity::2]
        return [call_s for part in chosen for call_s in part]


@dataclass(slots=True, kw_only=True)
class Lived:
    """A trace that Gearshift lived through."""

    phases: list["Stretch"]
    cpu_s: float
    max_error: float
    decisions: list[str]


@dataclass(slots=True)
class Stretch:
    """What Gearshift did in one phase; `plans` names the plan in force at each call, or tells that
    two took turns."""

    call_s: list[float] = field(default_factory=list)
    plans: list[str] = field(default_factory=list)

    def own_plans(self) -> dict[str, Slices]:
        """Its plans as if they were settings: odd calls are one slice, even ones another."""
        found: dict[str, list[float]] = {}
        for plan, call_s in zip(self.plans, self.call_s, strict=True):
            found.setdefault(plan, []).append(call_s)
        found.pop(TRIAL, None)
        return {
            f"gearshift's {plan}": Slices(call_s=[calls[0::2], calls[1::2]])
            for plan, calls in found.items()
            if len(calls) >= ENOUGH
        }


Settings = Mapping[str, Slices]


def case_of(phases: Sequence[Phase], lived: Lived, theirs: Sequence[Settings]) -> dict[str, Any]:
    ours = lived.phases
    names = [name for name in theirs[0] if name != TWICE]
    told = {name: _over_all(phases, theirs, name) for name in names}
    best_static, best_peer = (min(those, key=lambda n: told[n]) for those in (names, PEERS))
    best_static_s, best_peer_s = (_best_s(phases, theirs, those) for those in (names, PEERS))
    oracles = [_oracle(stretch, settings) for stretch, settings in zip(ours, theirs, strict=True)]
    oracle_s = _composed(phases, [oracle.mean_s for oracle in oracles])
    our_calls = [call_s for stretch in ours for call_s in stretch.call_s]
    our_s = _mean(our_calls)
    our_p95 = _quantile([(call_s, 1.0) for call_s in our_calls])
    our_cpu_s = lived.cpu_s / len(our_calls)
    return {
        "gearshift_s": our_s,
        "peers_s": {name: told[name] for name in PEERS},
        "static_s": told,
        "best_peer": best_peer,
        "best_static": best_static,
        "best_static_s": best_static_s,
        "oracle_s": oracle_s,
        "vs_eager": told["eager"] / our_s,
        "vs_best_peer": best_peer_s / our_s,
        "vs_best_static": best_static_s / our_s,
        "of_oracle": oracle_s / our_s,
        "p95_vs_eager": _static_p95(phases, theirs, "eager") / our_p95,
        "p95_vs_best_static": _static_p95(phases, theirs, best_static) / our_p95,
        "cpu_s_per_call": our_cpu_s,
        "cpu_vs_best_peer": _cpu_s_per_call(theirs, best_peer) / our_cpu_s,
        "max_error": lived.max_error,
        "phases": [
            _phase(phase, stretch, oracle)
            for phase, stretch, oracle in zip(phases, ours, oracles, strict=True)
        ],
        "decisions": lived.decisions,
    }


def noise_of(settings: Settings) -> float:
    """One peer is entered twice: the ratio between its two entries."""
    return _mean(settings["onnxruntime"].calls()) / _mean(settings[TWICE].calls())


def summary_of(cases: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    groups: dict[str, list[Mapping[str, Any]]] = {}
    for case in cases:
        groups.setdefault(f"{case['case']['trace']}, {case['case']['start']}", []).append(case)
    return {
        group: {
            ratio: {
                "geometric_mean": statistics.geometric_mean([m[ratio] for m in members]),
                "minimum": min(m[ratio] for m in members),
            }
            for ratio in RATIOS
        }
        for group, members in groups.items()
    }


def _over_all(
    phases: Sequence[Phase], theirs: Sequence[Settings], name: str, parity: int | None = None
) -> float:
    return _composed(phases, [_mean(settings[name].calls(parity)) for settings in theirs])


def _best_s(phases: Sequence[Phase], theirs: Sequence[Settings], names: Sequence[str]) -> float:
    """What the best of them takes over the trace."""
    return told_both_ways(names, lambda name, parity: _over_all(phases, theirs, name, parity))


def told_both_ways(names: Collection[str], mean_s: Callable[[str, int], float]) -> float:
    """What the best takes that was chosen on odd slices, on even ones; and the other way round."""

    def told_s(chosen_on: int) -> float:
        return mean_s(min(names, key=lambda name: mean_s(name, chosen_on)), 1 - chosen_on)

    return (told_s(0) + told_s(1)) / 2


@dataclass(frozen=True, slots=True)
class Oracle:
    """The best of all settings and of every plan that served, in one phase."""

    name: str
    mean_s: float
    median_s: float


def _oracle(stretch: Stretch, settings: Settings) -> Oracle:
    known = {name: slices for name, slices in settings.items() if name != TWICE}
    known |= stretch.own_plans()

    def best(parity: int | None) -> str:
        return min(known, key=lambda name: _mean(known[name].calls(parity)))

    told = [known[best(chosen_on)].calls(1 - chosen_on) for chosen_on in (0, 1)]
    return Oracle(
        best(None),
        _mean([_mean(calls) for calls in told]),
        _mean([statistics.median(calls) for calls in told]),
    )


def _phase(phase: Phase, stretch: Stretch, oracle: Oracle) -> dict[str, Any]:
    return {
        "neighbours": [str(neighbour) for neighbour in phase.neighbours],
        "seconds": phase.seconds,
        "gearshift_s": _mean(stretch.call_s) if stretch.call_s else None,
        "oracle": oracle.name,
        "oracle_s": oracle.mean_s,
        "settled": _settled(stretch, oracle.median_s),
        "plans": list(dict.fromkeys(stretch.plans)),
    }


def _settled(stretch: Stretch, oracle_s: float) -> dict[str, float] | None:
    """After how many calls and seconds a plan near the oracle's was in force and stayed, trials
    apart; None if never."""
    times: dict[str, list[float]] = {}
    for plan, call_s in zip(stretch.plans, stretch.call_s, strict=True):
        times.setdefault(plan, []).append(call_s)
    good = {p for p, calls in times.items() if statistics.median(calls) <= NEAR * oracle_s}
    good |= {TRIAL} if good else set()
    last = max((i for i, plan in enumerate(stretch.plans) if plan not in good), default=-1)
    if last + 1 == len(stretch.plans):
        return None
    return {"calls": last + 1, "seconds": sum(stretch.call_s[: last + 1])}


def _mean(values: Sequence[float]) -> float:
    return sum(values) / len(values)


def _composed(phases: Sequence[Phase], means_s: Sequence[float]) -> float:
    """Mean time per call over the trace: as many calls as fit into each phase."""
    numbers = [phase.seconds / mean_s for phase, mean_s in zip(phases, means_s, strict=True)]
    return sum(phase.seconds for phase in phases) / sum(numbers)


def _static_p95(phases: Sequence[Phase], theirs: Sequence[Settings], name: str) -> float:
    """Over all calls of the trace, as many of each phase as fit into it."""
    return _quantile(
        [
            (call_s, phase.seconds / _mean(calls) / len(calls))
            for phase, calls in zip(phases, [t[name].calls() for t in theirs], strict=True)
            for call_s in calls
        ]
    )


def _quantile(weighted: list[tuple[float, float]], share: float = 0.95) -> float:
    ordered = sorted(weighted)
    limit = share * sum(weight for _, weight in ordered)
    sums = accumulate(weight for _, weight in ordered)
    return next(v for (v, _), total in zip(ordered, sums, strict=True) if total >= limit)


def _cpu_s_per_call(theirs: Sequence[Settings], name: str) -> float:
    return sum(t[name].cpu_s for t in theirs) / sum(len(t[name].calls()) for t in theirs)
