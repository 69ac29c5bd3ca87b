"""What a call costs by the user's objective, in named parts.

Must not know who learns from it.
"""

from dataclasses import dataclass
from math import log

from gearshift.plan.objective import Objective

BUSY_CORE_W = 8.0
"""Modelled, where energy cannot be measured; only ratios between plans matter here."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Reward:
    """Minus the logarithm of each cost, weighted: a plan twice as fast gains the same anywhere."""

    latency: float
    energy: float

    @property
    def total(self) -> float:
        return self.latency + self.energy


def reward(objective: Objective, *, latency_s: float, cpu_s: float) -> Reward:
    """Throughput of one caller is latency by another name."""
    weights = objective.latency + objective.throughput + objective.energy
    if weights == 0:
        return Reward(latency=-log(latency_s), energy=0.0)
    share = objective.energy / weights
    return Reward(
        latency=-(1 - share) * log(latency_s),
        energy=-share * log(BUSY_CORE_W * cpu_s),
    )
