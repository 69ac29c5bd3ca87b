"""How fast the machine is just now, against how it usually is: what moves all plans alike.

Must not know plans. Without it, what was measured in a good minute would look like a good plan.
"""

import math
from dataclasses import dataclass

CALLS = 20
"""So many calls move it half of the way."""
DRIFT = 1.5
"""By so much the same plan may differ from one minute to another, in a situation that looks the
same; what is further off is no matter of the minute."""
LIMIT = math.log(DRIFT)


@dataclass(slots=True)
class Minute:
    value: float = 0.0
    """A logarithm; above 0 everything takes longer."""

    @property
    def factor(self) -> float:
        return math.exp(self.value)

    def add(self, off: float, calls: int) -> None:
        """So many calls of a plan known well were off by this, as a logarithm."""
        moved = self.value + off * calls / (calls + CALLS)
        self.value = min(max(moved, -LIMIT), LIMIT)
