"""Which of two plans that take turns is better, and whether that is clear yet.

Must not know plans: two lists of what calls cost in, a verdict out.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean, median, variance

AT_LEAST, AT_MOST = 12, 60
"""Calls of each before a verdict may be given, and must be."""
APART, CLEAR = 6, 1.25
"""So few are enough if the one takes so many times longer than the other;"""
PLAIN, BY_FAR = 3, 0.5
"""or so few, if each call of the one takes less than this share of each of the other's."""
TURN = 4
"""About so many calls one has before it is the other's turn."""
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
    """None while it is not clear. A hiccup that lasts for some calls makes them look sure of
    themselves; so the turns must agree as well."""
    calls = min(len(old), len(new))
    if calls < (PLAIN if _by_far(old, new) else APART):
        return None
    logs = [_trimmed_logs(seconds) for seconds in (old, new)]
    gain = fmean(logs[0]) - fmean(logs[1])
    if calls < AT_LEAST and abs(gain) < math.log(CLEAR):
        return None
    error = math.sqrt(max(sum(map(_error, logs)), _error_of_turns(old, new)))
    worth = math.log1p(WORTH)
    if abs(gain - worth) < SURE * error and calls < AT_MOST:
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


def _error_of_turns(old: Sequence[float], new: Sequence[float]) -> float:
    """How far the turns of both differ, each compared with the other's next to it: what changed
    from one to the next pair is nobody's doing."""
    pairs = zip(_turns(old), _turns(new), strict=False)
    apart = [mine - theirs for mine, theirs in pairs]
    return _error(apart) if len(apart) > 1 else 0.0


def _turns(seconds: Sequence[float]) -> list[float]:
    """The median of each that is whole."""
    whole = range(0, len(seconds) - TURN + 1, TURN)
    return [math.log(max(median(seconds[i : i + TURN]), 1e-9)) for i in whole]


def _error(values: Sequence[float]) -> float:
    """The squared standard error of the mean."""
    return variance(values) / len(values) if len(values) > 1 else 0.0
