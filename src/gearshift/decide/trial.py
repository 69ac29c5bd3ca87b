"""Which of two plans that take turns is better, and whether that is clear yet.

Must not know plans: two lists of what calls cost in, a verdict out.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean

AT_LEAST, AT_MOST = 6, 60
"""Calls of each before a verdict may be given, and must be."""
PLAIN, BY_FAR = 3, 0.5
"""So few are enough if each call of the one takes less than this share of each of the other's."""
SURE = 2.0
"""Standard errors between what is seen and what is claimed."""
WORTH = 0.02
"""A newcomer that gains less than this share stays out."""
TRIMMED = 0.1
"""The share of the longest calls that is left out: somebody else's hiccups."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    new_wins: bool
    gain: float
    """Old cost over new; above 1 the newcomer is better."""


def verdict(old: Sequence[float], new: Sequence[float]) -> Verdict | None:
    """None while it is not clear."""
    if min(len(old), len(new)) < (PLAIN if _by_far(old, new) else AT_LEAST):
        return None
    logs = [_trimmed_logs(seconds) for seconds in (old, new)]
    means = [fmean(values) for values in logs]
    gain = means[0] - means[1]
    error = math.sqrt(sum(_error(v, m) for v, m in zip(logs, means, strict=True)))
    worth = math.log1p(WORTH)
    if abs(gain - worth) < SURE * error and min(len(old), len(new)) < AT_MOST:
        return None
    return Verdict(new_wins=gain > worth, gain=math.exp(gain))


def times_as_fast(old: Sequence[float], new: Sequence[float]) -> float:
    """Old time over new."""
    return math.exp(fmean(_trimmed_logs(old)) - fmean(_trimmed_logs(new)))


def _by_far(old: Sequence[float], new: Sequence[float]) -> bool:
    if not old or not new:
        return False
    return max(new) < BY_FAR * min(old) or max(old) < BY_FAR * min(new)


def _trimmed_logs(seconds: Sequence[float]) -> list[float]:
    kept = sorted(seconds)[: len(seconds) - int(TRIMMED * len(seconds))]
    return [math.log(max(value, 1e-9)) for value in kept]


def _error(values: list[float], mean: float) -> float:
    """The squared standard error of the mean."""
    return sum((value - mean) ** 2 for value in values) / max(1, len(values) - 1) / len(values)
