"""One model beside its peers, in turns, as ratios; above 1: Gearshift is better.

Must not know how anything was measured. The best of several is chosen on odd slices and told on
even ones, and the other way round.
"""

import statistics
from collections.abc import Mapping, Sequence
from typing import Any

from gearshift.bench.score import (
    OURS,
    TWICE,
    Answers,
    Slices,
    p95_s,
    slices_of,
    told_both_ways,
)

TORCH = ("eager", "padded", "eager x1", "padded x1")
"""On all threads and on one."""
PEERS = (*TORCH, "torch.compile", "onnxruntime", "openvino")
"""The others as they come."""


def case_of(answers: Mapping[str, Answers]) -> dict[str, Any]:
    slices = {name: slices_of(found) for name, found in answers.items()}
    mine = slices.pop(OURS)
    ours, our_p95_s = statistics.fmean(mine.calls()), p95_s(mine.calls())
    again = slices.pop(TWICE, None)
    means = {name: statistics.fmean(found.calls()) for name, found in slices.items()}
    best_static = min(means, key=lambda name: means[name])
    return {
        "gearshift_s": ours,
        "peers_s": {name: seconds for name, seconds in means.items() if name in PEERS},
        "static_s": means,
        "best_static": best_static,
        "p95_vs_eager": p95_s(slices["eager"].calls()) / our_p95_s,
        "p95_vs_best_static": p95_s(slices[best_static].calls()) / our_p95_s,
        "cpu_s_per_call": mine.cpu_s / len(mine.calls()),
        "vs_eager": means["eager"] / ours,
        "vs_best_peer": _best_s(slices, PEERS) / ours,
        "vs_best_static": _best_s(slices, tuple(slices)) / ours,
        "vs_torch": _best_s(slices, TORCH) / ours,
        "noise": _noise(means, again),
        "max_error": max(answer["max_error"] for answer in answers[OURS]),
    }


def _noise(means: Mapping[str, float], again: Slices | None) -> float | None:
    """None if there was no such peer."""
    if again is None or "onnxruntime" not in means:
        return None
    return means["onnxruntime"] / statistics.fmean(again.calls())


def _best_s(slices: Mapping[str, Slices], names: Sequence[str]) -> float:
    some = {name: slices[name] for name in names if name in slices}
    return told_both_ways(some, lambda name, parity: statistics.fmean(some[name].calls(parity)))
