"""How far predictions were off: what was measured over what was foreseen, for each kind of them.

Must not know how anything is predicted.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

MEMORY = 30
"""A running mean over about so many."""
DOUBT = 5
"""A correction counts in full only if it was seen far more often than this."""
MOST = 2.0
MAX_RATIO = 100.0
"""What is further off than this was no prediction."""


@dataclass(slots=True)
class Ratio:
    """Running means of logarithms: how far what a model says is off, and the square of how far it
    was still off after it was corrected."""

    count: int = 0
    mean: float = 0.0
    square: float = 0.0

    def add(self, off: float, still_off: float) -> None:
        self.count += 1
        weight = 1 / min(self.count, MEMORY)
        self.mean += weight * (off - self.mean)
        self.square += weight * (still_off**2 - self.square)


@dataclass(slots=True)
class Calibration:
    ratios: dict[str, Ratio] = field(default_factory=dict)

    def add(self, kind: str, *, raw_s: float, predicted_s: float, measured_s: float) -> None:
        ratios = (measured_s / raw_s, measured_s / predicted_s)
        if all(1 / MAX_RATIO < ratio < MAX_RATIO for ratio in ratios):
            self.ratios.setdefault(kind, Ratio()).add(*map(math.log, ratios))

    def factor(self, kind: str) -> float:
        """What a model of this kind is to be multiplied with: never so much that a plan would not
        be given a chance any more."""
        ratio = self.ratios.get(kind)
        if ratio is None:
            return 1.0
        wanted = math.exp(ratio.mean * ratio.count / (ratio.count + DOUBT))
        return min(max(wanted, 1 / MOST), MOST)

    def typical_error(self) -> tuple[int, float]:
        """How many predictions were checked, and by what share they are typically off."""
        count = sum(ratio.count for ratio in self.ratios.values())
        if not count:
            return 0, 0.0
        square = sum(ratio.count * ratio.square for ratio in self.ratios.values()) / count
        return count, math.exp(math.sqrt(square)) - 1

    def to_data(self) -> dict[str, Any]:
        return {k: (r.count, r.mean, r.square) for k, r in self.ratios.items()}

    @classmethod
    def from_data(cls, data: Mapping[str, Any]) -> "Calibration":
        """Only what can have been written; the rest is learned anew."""
        limit = math.log(MAX_RATIO)
        ratios = {}
        for kind, entry in data.items():
            count, mean, square = entry
            if count >= 1 and abs(mean) <= limit and 0 <= square <= limit**2:
                ratios[kind] = Ratio(int(count), float(mean), float(square))
        return cls(ratios)
