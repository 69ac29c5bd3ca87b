"""What the user wants: weights and hard limits.

Must not know how any of it is measured.
"""

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

from gearshift.errors import UsageError


@dataclass(frozen=True, slots=True, kw_only=True)
class SplitWeights:
    """What a split earns, for policies that learn: less time, engines equally busy, fewer bytes
    between them, fewer bytes held."""

    time: float = 1.0
    balance: float = 0.05
    transfer: float = 0.05
    memory: float = 0.02

    def __post_init__(self) -> None:
        _refuse_odd("SplitWeights", asdict(self))


@dataclass(frozen=True, slots=True, kw_only=True)
class Objective:
    """Weights are relative to each other: latency=0.7, energy=0.3."""

    latency: float = 1.0
    throughput: float = 0.0
    energy: float = 0.0
    link_bytes: float = 0.0
    """Of engines on other machines; without any it changes nothing."""
    memory_limit: int | None = None
    """Bytes that the weights and everything compiled may hold, also while a new plan is built.
    None: the weights, and half of the memory that is free when `adapt` is called."""
    split: SplitWeights = field(default_factory=SplitWeights)

    def __post_init__(self) -> None:
        names = ("latency", "throughput", "energy", "link_bytes")
        weights = {name: getattr(self, name) for name in names}
        _refuse_odd("Objective", weights)
        if sum(weights.values()) == 0:
            raise UsageError("Objective: at least one weight must be above 0")
        limit = self.memory_limit
        whole = isinstance(limit, int) and not isinstance(limit, bool)
        if limit is not None and not (whole and limit > 0):
            raise UsageError(
                f"Objective(memory_limit={self.memory_limit!r}): expected bytes above 0"
            )


def _refuse_odd(whose: str, weights: Mapping[str, Any]) -> None:
    for name, weight in weights.items():
        if not (isinstance(weight, int | float) and math.isfinite(weight) and weight >= 0):
            raise UsageError(f"{whose}({name}={weight!r}): a weight is a number of at least 0")
