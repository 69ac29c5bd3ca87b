"""What `gearshift bench regions` makes of the calls it saw; ratios above 1: Gearshift is better.

Must not know how anything was measured. The best of several is chosen on odd slices and told on
even ones, and the other way round.
"""

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from gearshift.bench.score import (
    OURS,
    PEERS,
    TWICE,
    Answers,
    Slices,
    mean_and_least,
    noise_over,
    p95_s,
    slices_of,
    sound,
    told_both_ways,
)
from gearshift.errors import GearshiftError

UNFORMED = "unformed"
"""Gearshift without regions formed anew."""
CALLS = (100, 1_000, 10_000)
ROLLING, NEAR, SOON = 20, 1.05, 50
"""The median of so many calls, within so much of the best, is near it; so soon it should be."""
RATIOS = (
    *("vs_eager", "vs_best_peer"),
    *(f"{ratio}_at_{n}" for ratio in ("vs_eager", "vs_best_peer") for n in CALLS),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Life:
    """Of one contender, beginning with the model as it is."""

    ready_s: float
    """Until it could be called."""
    first_s: Sequence[float]
    """Its first calls, the very first among them,"""
    warm: Slices
    """and those when all was settled, in turns with the others'."""

    def warm_s(self, parity: int | None = None) -> float:
        return statistics.fmean(self.warm.calls(parity))

    def until_s(self, num_calls: int, parity: int | None = None) -> float:
        """To the end of so many calls. Those that were not run take what they take when warm."""
        ran = self.first_s[:num_calls]
        return self.ready_s + sum(ran) + (num_calls - len(ran)) * self.warm_s(parity)


def case_of(lives: Mapping[str, Life]) -> dict[str, Any]:
    ours, peers = lives[OURS], {name: lives[name] for name in PEERS if name in lives}
    peers_s = {name: life.warm_s() for name, life in peers.items()}
    best_peer_s = told_both_ways(peers, lambda name, parity: peers[name].warm_s(parity))
    told = {name: life for name, life in lives.items() if name != TWICE}
    until_s = {n: {name: life.until_s(n) for name, life in told.items()} for n in CALLS}
    return {
        "gearshift_s": ours.warm_s(),
        "peers_s": peers_s,
        "best_peer": min(peers_s, key=lambda name: peers_s[name]),
        "best_peer_s": best_peer_s,
        "vs_eager": peers_s["eager"] / ours.warm_s(),
        "vs_best_peer": best_peer_s / ours.warm_s(),
        "vs_unformed": _times(lives, UNFORMED, OURS),
        "noise": _times(lives, "onnxruntime", TWICE),
        "calls": {name: len(life.warm.calls()) for name, life in told.items()},
        "ready_s": {name: life.ready_s for name, life in told.items()},
        "first_call_s": {name: life.first_s[0] for name, life in told.items()},
        "until_s": until_s,
        **{f"vs_eager_at_{n}": found["eager"] / found[OURS] for n, found in until_s.items()},
        **{f"vs_best_peer_at_{n}": _soonest_s(peers, n) / f[OURS] for n, f in until_s.items()},
    }


def _times(lives: Mapping[str, Life], one: str, other: str) -> float | None:
    """How many times as long the one takes; None if there are not both."""
    if one not in lives or other not in lives:
        return None
    return lives[one].warm_s() / lives[other].warm_s()


def _soonest_s(peers: Mapping[str, Life], num_calls: int) -> float:
    return told_both_ways(peers, lambda name, parity: peers[name].until_s(num_calls, parity))


def shapes_of(ours: Slices, peers: Mapping[str, Slices]) -> dict[str, Any]:
    """All calls since the inputs are of another size, the first one among them, but for the first
    after each pause. The best is the best peer made for that size, or what Gearshift takes in the
    end if that is less."""
    call_s, eager_s = ours.calls(), statistics.median(peers["eager"].calls())
    best_peer_s = told_both_ways(
        peers, lambda name, parity: statistics.fmean(peers[name].calls(parity))
    )
    end_s = statistics.fmean(call_s[-max(1, len(call_s) // 3) :])
    near_s = NEAR * min(best_peer_s, end_s)
    later_s = rolling_s(call_s)[SOON:]
    return {
        "gearshift_s": end_s,
        "peers_s": {name: statistics.fmean(slices.calls()) for name, slices in peers.items()},
        "vs_best_peer": best_peer_s / end_s,
        "calls_until_near": until_near(call_s, near_s),
        f"near_after_{SOON}": _share([median_s <= near_s for median_s in later_s]),
        "first_call_vs_eager": call_s[0] / eager_s,
        "worst_call_vs_eager": max(call_s) / eager_s,
        "eager_worst": max(peers["eager"].calls()) / eager_s,
    }


def rolling_s(call_s: Sequence[float]) -> list[float]:
    """Medians of so many calls in a row."""
    starts = range(max(1, len(call_s) - ROLLING + 1))
    return [statistics.median(call_s[start : start + ROLLING]) for start in starts]


def until_near(call_s: Sequence[float], near_s: float) -> int | None:
    """After how many calls the rolling median was that near, to stay, by the middle of what it is
    the median of; 0: from the first on; None: never."""
    medians_s = rolling_s(call_s)
    far = [index for index, median_s in enumerate(medians_s) if median_s > near_s]
    if not far:
        return 0
    soonest = max(far) + 1
    return None if soonest == len(medians_s) else soonest + ROLLING // 2


def _share(said: Sequence[bool]) -> float | None:
    return statistics.fmean(said) if said else None


def builds_of(building: Answers, resting: Answers) -> dict[str, Any]:
    """Calls beside builds, and the same calls without; refused if there were none, or on the cores
    of the calls."""
    last = building[-1]
    if not set(last["background_cores"]) - set(last["cores"]):
        raise GearshiftError("builds had no core but that of the calls")
    if not last["builds"]:
        raise GearshiftError("nothing was built")
    busy, calm = slices_of(building), slices_of(resting)
    return {
        "builds": last["builds"],
        "cores": last["cores"],
        "background_cores": last["background_cores"],
        "p95_s": p95_s(calm.calls()),
        "p95_while_building_s": p95_s(busy.calls()),
        "p95_ratio": p95_s(busy.calls()) / p95_s(calm.calls()),
        "mean_ratio": statistics.fmean(busy.calls()) / statistics.fmean(calm.calls()),
        "noise": p95_s(calm.calls(0)) / p95_s(calm.calls(1)),
    }


def over_all(cases: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Of those that did not fail. Void, if there is none or the same contender twice differs."""
    measured, told = sound(cases), noise_over(cases)
    doubles = [case["noise"] for case in measured if case["noise"] is not None]
    if not doubles:
        return {**told, "summary": {}}
    return {
        **told,
        "noise_of_a_case": statistics.geometric_mean(max(r, 1 / r) for r in doubles),
        "noise_at_most": max(max(ratio, 1 / ratio) for ratio in doubles),
        "summary": {"quiet": {ratio: mean_and_least(measured, ratio) for ratio in RATIOS}},
    }
