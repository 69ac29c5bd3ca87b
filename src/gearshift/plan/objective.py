"""What the user wants: weights and hard limits.

Must not know how any of it is measured.
"""

import math
from dataclasses import dataclass, fields

from gearshift.errors import UsageError


@dataclass(frozen=True, slots=True, kw_only=True)
class Objective:
    """Weights are relative to each other: latency=0.7, energy=0.3."""

    latency: float = 1.0
    throughput: float = 0.0
    energy: float = 0.0
    link_bytes: float = 0.0
    memory_limit: int | None = None
    """Bytes that the weights and everything compiled may hold, also while a new plan is built.
    None: the weights, and half of the memory that is free when `adapt` is called."""

    def __post_init__(self) -> None:
        weights = {f.name: getattr(self, f.name) for f in fields(self) if f.name != "memory_limit"}
        for name, weight in weights.items():
            if not (isinstance(weight, int | float) and math.isfinite(weight) and weight >= 0):
                raise UsageError(
                    f"Objective({name}={weight!r}): a weight is a number of at least 0"
                )
        if sum(weights.values()) == 0:
            raise UsageError("Objective: at least one weight must be above 0")
        limit = self.memory_limit
        whole = isinstance(limit, int) and not isinstance(limit, bool)
        if limit is not None and not (whole and limit > 0):
            raise UsageError(
                f"Objective(memory_limit={self.memory_limit!r}): expected bytes above 0"
            )
