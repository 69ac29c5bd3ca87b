"""What a call costs by the user's objective, in named parts.

Must not know who learns from it.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from math import exp, log

from gearshift.ir.snapshot import Situation, Snapshot
from gearshift.plan.objective import Objective
from gearshift.plan.plan import Plan

SMOOTH = 0.2
MAX_KNOWN = 512


@dataclass(frozen=True, slots=True, kw_only=True)
class Reward:
    """Minus the logarithm of each cost, weighted: a plan twice as fast gains the same anywhere."""

    latency: float
    energy: float

    @property
    def total(self) -> float:
        return self.latency + self.energy


def reward(objective: Objective, *, latency_s: float, energy_j: float) -> Reward:
    """Throughput of one caller is latency by another name."""
    weights = objective.latency + objective.throughput + objective.energy
    if weights == 0:
        return Reward(latency=-log(latency_s), energy=0.0)
    share = objective.energy / weights
    return Reward(
        latency=-(1 - share) * log(latency_s),
        energy=-share * log(energy_j),
    )


class Costs:
    """What a call of a plan costs, as seconds: its time, if nothing but time counts."""

    def __init__(self, objective: Objective, num_cores: int) -> None:
        self.objective, self.num_cores = objective, num_cores
        self._energy_j: dict[tuple[Situation, str], float] = {}
        self._thread_w = 1.0

    def note(self, snapshot: Snapshot, plans: Mapping[str, Plan]) -> None:
        """Of the one plan that ran, which need not be the one in force."""
        energy_j, samples = snapshot.energy_j, snapshot.samples
        if not energy_j or energy_j <= 0 or len(samples) != 1 or samples[0].plan not in plans:
            return
        plan = plans[samples[0].plan]
        key = samples[0].situation, plan.fingerprint
        before = self._energy_j.pop(key, energy_j)
        self._energy_j[key] = before + SMOOTH * (energy_j - before)
        while len(self._energy_j) > MAX_KNOWN:
            del self._energy_j[next(iter(self._energy_j))]
        mean_s = sum(samples[0].seconds) / len(samples[0].seconds)
        self._thread_w = energy_j / (mean_s * self._threads(plan))

    def of(self, situation: Situation, plan: Plan, mean_s: float) -> float:
        """A plan whose energy is not known here yet draws what others' threads draw."""
        guess_j = self._thread_w * mean_s * self._threads(plan)
        energy_j = self._energy_j.get((situation, plan.fingerprint), guess_j)
        return exp(-reward(self.objective, latency_s=mean_s, energy_j=energy_j).total)

    def energy_j(self, situation: Situation, plan: str) -> float | None:
        """Of a call of this plan, by fingerprint."""
        return self._energy_j.get((situation, plan))

    def _threads(self, plan: Plan) -> int:
        return max((r.threads or self.num_cores) for r in plan.regions)
