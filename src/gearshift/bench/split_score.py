"""What splits were measured to take, as the ratios a benchmark prints; 1 is as good as the oracle.

Must not know how anything was measured.
"""

import statistics
from collections.abc import Mapping, Sequence
from typing import Any

from gearshift.bench.score import Slices, mean_and_least, sound, told_both_ways
from gearshift.decide.split.actions import FOLLOW, NAMES

WINDOW, NEAR = 20, 1.1
RATIOS = ("vs_eager", "vs_best_peer", "vs_best_static", "p95_vs_best_static")
ITSELF = "by itself"
"""The runtime, with nobody telling it what to do."""
DIVIDED = f" {NAMES[FOLLOW]}"
"""In the words of a plan."""
UNDIVIDED = NAMES[0]
FIXED = tuple(name for name in NAMES if name != NAMES[FOLLOW])
"""Ways whose shares do not follow."""


def often_seen(ways: Mapping[str, Slices]) -> dict[str, Slices]:
    """Those that had the most turns: among many that had a few, the best would be one that was
    lucky."""
    most = max(len(found.call_s) for found in ways.values())
    return {name: found for name, found in ways.items() if len(found.call_s) == most}


def best_s(ways: Mapping[str, Slices]) -> float:
    often = often_seen(ways)
    return told_both_ways(often, lambda name, parity: statistics.fmean(often[name].calls(parity)))


def settled(call_s: Sequence[float], oracle_s: float) -> int | None:
    """After how many calls the median of the last twenty is near the oracle's; None if never."""
    near = _near(call_s, oracle_s)
    return WINDOW + near.index(True) if any(near) else None


def stayed(call_s: Sequence[float], oracle_s: float) -> float:
    """For how much of the time after that it is; 0 if never."""
    near = _near(call_s, oracle_s)
    since = near[near.index(True) :] if any(near) else [False]
    return statistics.fmean(since)


def _near(call_s: Sequence[float], oracle_s: float) -> list[bool]:
    """At each call from the twentieth on."""
    medians = (
        statistics.median(call_s[end - WINDOW : end]) for end in range(WINDOW, len(call_s) + 1)
    )
    return [median_s <= NEAR * oracle_s for median_s in medians]


def stepped(
    ways: Mapping[str, Sequence[Sequence[float]]], oracle_s: Sequence[float]
) -> dict[str, Any]:
    """What calls took on each way, phase by phase. In one long phase a way may take less than in
    short turns with others: then the oracle does, too."""
    ideal_s = [
        min(
            best,
            *(statistics.fmean(phases[at][len(phases[at]) // 2 :]) for phases in ways.values()),
        )
        for at, best in enumerate(oracle_s)
    ]
    return {"oracle_s": ideal_s, "steps": {way: _step(p, ideal_s) for way, p in ways.items()}}


def _step(phases: Sequence[Sequence[float]], ideal_s: Sequence[float]) -> dict[str, Any]:
    took_s = sum(sum(phase) for phase in phases)
    best = sum(ideal * len(phase) for ideal, phase in zip(ideal_s, phases, strict=True))
    changes = list(zip(phases[1:], ideal_s[1:], strict=True))
    return {
        "phase_s": [statistics.fmean(phase) for phase in phases],
        "calls_to_follow": [settled(phase, ideal) for phase, ideal in changes],
        "stayed": [stayed(phase, ideal) for phase, ideal in changes],
        "regret": took_s / best - 1,
    }


def case_of(
    about: Mapping[str, Any], slices: Mapping[str, Slices], chosen: Mapping[str, str], plan: str
) -> dict[str, Any]:
    """One region on two engines: what every way took, what each player chose, and on which plan the
    runtime was in the end. Players have the ways of one backend, the oracle those of both."""
    every_way = {name: found for name, found in slices.items() if name != ITSELF}
    ways = {name: found for name, found in every_way.items() if name in NAMES}
    oracle_s, players_oracle_s = best_s(every_way), best_s(ways)
    means_s = {name: statistics.fmean(found.calls()) for name, found in slices.items()}
    return {
        "case": dict(about),
        "ways_s": means_s,
        "oracle": min(often_seen(every_way), key=lambda name: means_s[name]),
        "oracle_s": oracle_s,
        "players_oracle_s": players_oracle_s,
        "by_itself": {"plan": plan, "of_oracle": oracle_s / means_s[ITSELF]},
        "players": {
            player: {"action": action, "of_oracle": players_oracle_s / means_s[action]}
            for player, action in chosen.items()
        },
    }


def summary_of(
    cases: Sequence[Mapping[str, Any]],
    steps: Sequence[Mapping[str, Any]],
    models: Sequence[Mapping[str, Any]],
) -> dict[str, Any]:
    cases, steps, models = map(sound, (cases, steps, models))
    return {
        **_regions(cases),
        "steps": {
            way: _over_steps([s["steps"][way] for s in steps if way in s["steps"]])
            for way in dict.fromkeys(way for step in steps for way in step["steps"])
        },
        "models": _beside_peers(models),
    }


def _regions(cases: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    if not cases:
        return {"best_fixed": None, "engines": {}, "unseen": None}
    unseen = [case for case in cases if case["case"]["unseen"]]
    fixed = best_fixed(cases)
    return {
        "best_fixed": fixed,
        "engines": {
            engines: _of_oracle([c for c in cases if c["case"]["engines"] == engines], fixed)
            for engines in dict.fromkeys(c["case"]["engines"] for c in cases)
        },
        "unseen": _of_oracle(unseen, fixed) if unseen else None,
    }


def best_fixed(cases: Sequence[Mapping[str, Any]]) -> str:
    """The one way that is best for all cases together."""
    return max(FIXED, key=lambda name: _fixed_of_oracle(cases, name))


def _fixed_of_oracle(cases: Sequence[Mapping[str, Any]], name: str) -> float:
    """Always the same way; undivided where it is illegal."""
    return statistics.geometric_mean(
        case["players_oracle_s"] / case["ways_s"].get(name, case["ways_s"][UNDIVIDED])
        for case in cases
    )


def _over_steps(steps: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """All models, the worst of each; None: one of them never followed."""
    calls = [count for step in steps for count in step["calls_to_follow"]]
    return {
        "of_oracle": statistics.geometric_mean(1 / (1 + step["regret"]) for step in steps),
        "calls_to_follow_at_most": None if None in calls else max(calls),
        "stayed_at_least": min(share for step in steps for share in step["stayed"]),
        "regret_at_most": max(step["regret"] for step in steps),
    }


def _of_oracle(cases: Sequence[Mapping[str, Any]], fixed: str) -> dict[str, float]:
    mean = statistics.geometric_mean
    players = {
        player: mean(c["players"][player]["of_oracle"] for c in cases)
        for player in cases[0]["players"]
    }
    itself = [case["by_itself"] for case in cases]
    some = [found["of_oracle"] for found in itself if DIVIDED in found["plan"]]
    return {
        ITSELF: mean(found["of_oracle"] for found in itself),
        f"{ITSELF}, least": min(found["of_oracle"] for found in itself),
        **({f"{ITSELF}, where it divides ({len(some)})": mean(some)} if some else {}),
        "best fixed": _fixed_of_oracle(cases, fixed),
        **players,
    }


def _beside_peers(cases: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    groups: dict[str, list[Mapping[str, Any]]] = {}
    for case in cases:
        about = case["case"]
        groups.setdefault(f"{about['trace']}, batch {about['batch']}", []).append(case)
    return {
        name: {ratio: mean_and_least(group, ratio) for ratio in RATIOS}
        for name, group in groups.items()
    }
