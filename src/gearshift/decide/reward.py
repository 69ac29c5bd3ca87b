"""What a call costs by the user's objective, in named parts.

Must not know who learns from it.
"""

from dataclasses import dataclass
from math import exp, log

from gearshift.ir.snapshot import Snapshot
from gearshift.plan.objective import Objective
from gearshift.plan.plan import Plan

BUSY_CORE_W = 8.0
"""Modelled, where energy cannot be measured; only ratios between plans matter here."""
SMOOTH = 0.2


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


class Costs:
    """What a call of a plan costs, as seconds: its time, if nothing but time counts."""

    def __init__(self, objective: Objective, num_cores: int) -> None:
        self.objective, self.num_cores = objective, num_cores
        self._cpu_s: dict[str, float] = {}

    def note(self, snapshot: Snapshot) -> None:
        if snapshot.cpu_s is not None and snapshot.cpu_s > 0:
            before = self._cpu_s.setdefault(snapshot.plan, snapshot.cpu_s)
            self._cpu_s[snapshot.plan] = before + SMOOTH * (snapshot.cpu_s - before)

    def of(self, plan: Plan, mean_s: float) -> float:
        """CPU time is modelled by threads until it was measured."""
        threads = max((r.rewrite.threads or self.num_cores) for r in plan.regions)
        cpu_s = self._cpu_s.get(plan.fingerprint, mean_s * threads)
        return exp(-reward(self.objective, latency_s=mean_s, cpu_s=cpu_s).total)
