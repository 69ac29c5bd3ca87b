"""A predicted cost and how sure it is.

Must not know where it comes from.
"""

from dataclasses import dataclass

from gearshift.ir.measurement import Source


@dataclass(frozen=True, slots=True, kw_only=True)
class Estimate:
    mean_s: float
    deviation_s: float
    """One standard deviation of the mean."""
    source: Source
    raw_s: float | None = None
    """What a model said before it was corrected by what came of earlier estimates of its kind."""
    kind: str = "measured"
    """How it was made, and for which backend: estimates of a kind are off by the same."""
    count: int = 0
    """How many calls it rests on."""

    @property
    def hopeful_s(self) -> float:
        """As good as it may well be."""
        return max(0.0, self.mean_s - self.deviation_s)

    @property
    def at_worst_s(self) -> float:
        """As bad as it may well be."""
        return self.mean_s + self.deviation_s
