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
OURS, TWICE = "gearshift", "onnxruntime again"
VOID_BEYOND = 0.05
"""Noise of more than this makes a run void."""
FAR, TWO_SLICES = 1.5, 2
"""A setting that took so many times longer than the best in two slices has no more of them,"""
STAYING = ("onnxruntime", TWICE, OURS)
"""except for the two that tell the noise, and Gearshift."""
NEAR = 1.1
"""Within so much of the oracle's time a plan is as good as its."""
SOON_CALLS, SOON_S = 60, 1.0
"""So many calls after a change, or so long if that is longer, a plan as good should be in force."""
ENOUGH = 20
"""Calls that a plan of Gearshift's own must have served beside the same neighbours to be the
oracle's choice."""
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


Answers = Sequence[Mapping[str, Any]]
"""What a contender told, one slice after the other."""


def slices_of(answers: Answers) -> Slices:
    found = Slices()
    for answer in answers:
        found.add(answer)
    return found


def in_the_running(slices: Mapping[str, Slices], far: float = FAR) -> list[str]:
    """All but those far behind, once each was seen as often on odd slices as on even ones."""
    mean_s = {name: statistics.fmean(calls) for name in slices if (calls := slices[name].calls())}
    limit_s = far * min(mean_s.values(), default=0.0)
    out = {
        name
        for name, seconds in mean_s.items()
        if seconds > limit_s and len(slices[name].call_s) == TWO_SLICES
    }
    return [name for name in slices if name not in out.difference(STAYING)]


def p95_s(call_s: Sequence[float]) -> float:
    return statistics.quantiles(call_s, n=20)[-1]


def sound(cases: Sequence[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    """Those that could be measured."""
    return [case for case in cases if "failed" not in case]


def noise_over(cases: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Of all cases; void if it is too much, or nothing tells it."""
    doubles = [case["noise"] for case in sound(cases) if case["noise"] is not None]
    noise = statistics.geometric_mean(doubles) if doubles else None
    return {"noise": noise, "void": noise is None or abs(noise - 1) > VOID_BEYOND}


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


Settings = Mapping[str, Slices]


def case_of(
    phases: Sequence[Phase], lived: Lived, theirs: Sequence[Settings], *, elsewhere: Lived
) -> dict[str, Any]:
    """`elsewhere` is the other life through the same trace: the oracle knows plans that served only
    there, too."""
    ours = lived.phases
    names = [name for name in theirs[0] if name != TWICE]
    told = {name: _over_all(phases, theirs, name) for name in names}
    best_static, best_peer = (min(those, key=lambda n: told[n]) for those in (names, PEERS))
    best_static_s, best_peer_s = (_best_s(phases, theirs, those) for those in (names, PEERS))
    oracles = _oracles(phases, lived, theirs, elsewhere)
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
            _phase(phase, stretch, in_force, oracle, settings)
            for phase, stretch, in_force, oracle, settings in zip(
                phases, ours, _in_force(ours), oracles, theirs, strict=True
            )
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
    return {group: _summary(members) for group, members in groups.items()}


def _summary(cases: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    changes = [phase for case in cases for phase in case["phases"][1:]]
    came = [phase["soon"] for phase in changes if phase["neighbours"]]
    went = [phase["soon"] for phase in changes if not phase["neighbours"]]
    return {
        **{ratio: mean_and_least(cases, ratio) for ratio in RATIOS},
        "changes": {
            "came": {"number": len(came), "followed_soon": sum(came)},
            "went": {"number": len(went), "followed_soon": sum(went)},
        },
    }


def mean_and_least(cases: Sequence[Mapping[str, Any]], ratio: str) -> dict[str, float]:
    found = [case[ratio] for case in cases]
    return {"geometric_mean": statistics.geometric_mean(found), "minimum": min(found)}


def _over_all(
    phases: Sequence[Phase], theirs: Sequence[Settings], name: str, parity: int | None = None
) -> float:
    return _composed(phases, [_mean(settings[name].calls(parity)) for settings in theirs])


def _best_s(phases: Sequence[Phase], theirs: Sequence[Settings], names: Sequence[str]) -> float:
    """What the best of them takes over the trace."""
    return told_both_ways(names, lambda name, parity: _over_all(phases, theirs, name, parity))


Told = Callable[[str, int], float]


def told_both_ways(names: Collection[str], mean_s: Told) -> float:
    """What the best takes that was chosen on odd slices, on even ones; and the other way round."""

    def told_s(chosen_on: int) -> float:
        return mean_s(min(names, key=lambda name: mean_s(name, chosen_on)), 1 - chosen_on)

    return (told_s(0) + told_s(1)) / 2


@dataclass(frozen=True, slots=True)
class Oracle:
    """The best of all settings and of every plan that served, in one phase."""

    name: str
    mean_s: float


def _oracles(
    phases: Sequence[Phase], lived: Lived, theirs: Sequence[Settings], elsewhere: Lived
) -> list[Oracle]:
    """One for each phase. Own plans count wherever they served beside the same neighbours, in this
    life or, if they did not in this one, in the other."""
    oracles = []
    for phase, settings in zip(phases, theirs, strict=True):
        alike = [index for index, other in enumerate(phases) if _same(other, phase)]
        own, others = (_own_plans(life, alike) for life in (lived, elsewhere))
        oracles.append(_oracle({**others, **own, **settings}))
    return oracles


def _same(one: Phase, other: Phase) -> bool:
    return one.neighbours == other.neighbours


def _own_plans(lived: Lived, indices: Sequence[int]) -> dict[str, Slices]:
    """Plans as if they were settings: odd calls are one slice, even ones another."""
    found: dict[str, list[float]] = {}
    for index in indices:
        stretch = lived.phases[index]
        for plan, call_s in zip(stretch.plans, stretch.call_s, strict=True):
            found.setdefault(plan, []).append(call_s)
    found.pop(TRIAL, None)
    return {
        f"gearshift's {plan}": Slices(call_s=[calls[0::2], calls[1::2]])
        for plan, calls in found.items()
        if len(calls) >= ENOUGH
    }


def _oracle(ways: Settings) -> Oracle:
    known = {name: slices for name, slices in ways.items() if name != TWICE}
    mean_s = told_both_ways(known, lambda name, parity: _mean(known[name].calls(parity)))
    return Oracle(min(known, key=lambda name: _mean(known[name].calls())), mean_s)


def _in_force(ours: Sequence[Stretch]) -> list[list[str]]:
    """The plan in force at each call: during a trial it is the one before."""
    found, last = [], TRIAL
    for stretch in ours:
        held = []
        for plan in stretch.plans:
            last = last if plan == TRIAL else plan
            held.append(last)
        found.append(held)
    return found


def _phase(
    phase: Phase, stretch: Stretch, in_force: Sequence[str], oracle: Oracle, theirs: Settings
) -> dict[str, Any]:
    settled = _settled(stretch, in_force, oracle.mean_s)
    return {
        "neighbours": [str(neighbour) for neighbour in phase.neighbours],
        "seconds": phase.seconds,
        "gearshift_s": _mean(stretch.call_s) if stretch.call_s else None,
        "oracle": oracle.name,
        "oracle_s": oracle.mean_s,
        "static_s": {name: _mean(slices.calls()) for name, slices in theirs.items()},
        "settled": settled,
        "soon": settled is not None
        and (settled["calls"] <= SOON_CALLS or settled["seconds"] <= SOON_S),
        "plans": list(dict.fromkeys(stretch.plans)),
    }


def _settled(stretch: Stretch, in_force: Sequence[str], oracle_s: float) -> dict[str, float] | None:
    """After how many calls and seconds a plan near the oracle's was in force and stayed; None if
    never. Calls of a trial tell nothing of how good a plan is."""
    times: dict[str, list[float]] = {}
    for plan, call_s in zip(stretch.plans, stretch.call_s, strict=True):
        times.setdefault(plan, []).append(call_s)
    good = {p for p, calls in times.items() if _mean(calls) <= NEAR * oracle_s}
    good.discard(TRIAL)
    last = max((i for i, plan in enumerate(in_force) if plan not in good), default=-1)
    if last + 1 == len(in_force):
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
