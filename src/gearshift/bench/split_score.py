"""What splits were measured to take, as the ratios a benchmark prints; 1 is as good as the oracle.

Must not know how anything was measured.
"""

import statistics
from collections.abc import Mapping, Sequence
from typing import Any

from gearshift.bench.score import Slices, mean_and_least, told_both_ways

WINDOW, NEAR = 20, 1.1
RATIOS = ("vs_best_static", "p95_vs_best_static", "vs_best_peer", "of_oracle")


def best_s(ways: Mapping[str, Slices]) -> float:
    return told_both_ways(ways, lambda name, parity: statistics.fmean(ways[name].calls(parity)))


def settled(call_s: Sequence[float], oracle_s: float) -> int | None:
    """After how many calls the median of the last twenty is near the oracle's; None if never."""
    for end in range(WINDOW, len(call_s) + 1):
        if statistics.median(call_s[end - WINDOW : end]) <= NEAR * oracle_s:
            return end
    return None


def summary_of(
    cases: Sequence[Mapping[str, Any]],
    steps: Sequence[Mapping[str, Any]],
    models: Sequence[Mapping[str, Any]],
) -> dict[str, Any]:
    unseen = [case for case in cases if case["case"]["unseen"]]
    return {
        "engines": {
            engines: _of_oracle([c for c in cases if c["case"]["engines"] == engines])
            for engines in dict.fromkeys(c["case"]["engines"] for c in cases)
        },
        "unseen": _of_oracle(unseen) if unseen else None,
        "steps": {way: _worst([s["steps"][way] for s in steps]) for way in steps[0]["steps"]},
        "models": _beside_peers([c for c in models if c["case"]["start"] == "warm"]),
    }


def _worst(steps: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Over all models; None: one of them never followed."""
    calls = [count for step in steps for count in step["calls_to_follow"]]
    return {
        "calls_to_follow_at_most": None if None in calls else max(calls),
        "regret_at_most": max(step["regret"] for step in steps),
    }


def _of_oracle(cases: Sequence[Mapping[str, Any]]) -> dict[str, float]:
    mean = statistics.geometric_mean
    players = {
        player: mean(c["players"][player]["of_oracle"] for c in cases)
        for player in cases[0]["players"]
    }
    return {
        "by itself": mean(c["by_itself"]["of_oracle"] for c in cases),
        "best fixed": mean(c["players_oracle_s"] / c["best_fixed_s"] for c in cases),
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
