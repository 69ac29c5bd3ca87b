"""Latencies added up: count, mean and spread, mergeable in any order (Welford, Chan).

Must not know what was timed, nor where sums are kept.
"""

from collections.abc import Iterable
from dataclasses import dataclass, replace
from math import fsum

from gearshift.ir.measurement import MAX_S, is_sample

MAX_COUNT = 2**53
REMEMBERED = 5_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Latency:
    """Samples weigh the same, so one more moves the mean by at most `MAX_S / count`: who trusts
    a mean looks at the count, too."""

    count: int
    mean_s: float
    m2_s2: float
    """The sum of squared differences from the mean."""

    @property
    def variance_s2(self) -> float | None:
        return self.m2_s2 / (self.count - 1) if self.count > 1 else None

    @property
    def is_sound(self) -> bool:
        """Whether samples could have added up to this: it may come from a file."""
        if type(self.count) is not int or not 1 <= self.count <= MAX_COUNT:
            return False
        if type(self.mean_s) is not float or type(self.m2_s2) is not float:
            return False
        return is_sample(self.mean_s) and 0.0 <= self.m2_s2 <= self.count * MAX_S**2

    def faded(self) -> "Latency":
        """As if it were of no more than the last few thousand samples: machines change."""
        count = min(self.count, REMEMBERED)
        return replace(self, count=count, m2_s2=self.m2_s2 * count / self.count)

    def merged(self, other: "Latency") -> "Latency":
        count = self.count + other.count
        apart_s = other.mean_s - self.mean_s
        mean_s = self.mean_s + apart_s * other.count / count
        return Latency(
            count=count,
            mean_s=_between(mean_s, self.mean_s, other.mean_s),
            m2_s2=self.m2_s2 + other.m2_s2 + apart_s**2 * self.count * other.count / count,
        )


def latency_of(seconds: Iterable[float]) -> Latency | None:
    """Of the samples that can be true; None if there are none."""
    samples = [float(s) for s in seconds if is_sample(s)]
    if not samples:
        return None
    mean_s = _between(fsum(samples) / len(samples), min(samples), max(samples))
    return Latency(
        count=len(samples), mean_s=mean_s, m2_s2=fsum((s - mean_s) ** 2 for s in samples)
    )


def _between(value: float, one: float, other: float) -> float:
    """Rounding must not carry a mean outside its samples."""
    return min(max(value, min(one, other)), max(one, other))
