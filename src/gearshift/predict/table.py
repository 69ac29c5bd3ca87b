"""Measured times of whole plans by situation, and estimates for the gaps between them.

Must not know who measured.
"""

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from gearshift.ir.measurement import Source
from gearshift.ir.snapshot import Situation
from gearshift.plan.plan import Plan, Region
from gearshift.predict.estimate import Estimate

MEMORY = 200
"""A running mean over about so many calls: what was long ago counts little."""
ENOUGH = 5
UNSURE_ELSEWHERE, UNSURE_ANYHOW = 0.4, 0.5
BACKEND_GUESS = {"eager": 1.0, "inductor": 0.9, "onnxruntime": 0.7, "openvino": 0.65}
"""Time against eager on a quiet machine, before anything is known of the model (geometric means of
the built-in models on two cores)."""
SHORTEST_S, LONGEST_S = 1e-6, 3600.0


@dataclass(slots=True)
class Stats:
    """A running mean of the logarithm, so that a call ten times as long moves it by a step."""

    count: int = 0
    mean: float = 0.0
    spread: float = 0.0

    def add(self, seconds: float) -> None:
        if not SHORTEST_S <= seconds <= LONGEST_S:  # also NaN
            return
        self.count += 1
        value, weight = math.log(seconds), 1 / min(self.count, MEMORY)
        step = value - self.mean
        self.mean += weight * step
        self.spread += weight * (step * step * (1 - weight) - self.spread)

    @classmethod
    def of(cls, mean_s: float, variance_s2: float) -> "Stats":
        """From a plain mean and variance."""
        return cls(count=MEMORY, mean=math.log(mean_s), spread=variance_s2 / mean_s**2)

    def forget(self, count: int) -> None:
        """What was learned counts for no more than so many calls from here on."""
        self.count = min(self.count, count)

    def estimate(self) -> Estimate:
        mean_s = math.exp(self.mean)
        deviation = math.sqrt(max(self.spread, 1e-4) / max(1, min(self.count, MEMORY)))
        return Estimate(
            mean_s=mean_s,
            deviation_s=mean_s * deviation,
            source=Source.MEASURED,
            count=self.count,
        )


class Table:
    def __init__(self, num_cores: int) -> None:
        self.num_cores = num_cores
        self.rows: dict[Situation, dict[str, Stats]] = {}

    def add(self, situation: Situation, plan: str, seconds: Iterable[float]) -> None:
        stats = self.rows.setdefault(situation, {}).setdefault(plan, Stats())
        for value in seconds:
            stats.add(value)

    def measured(self, situation: Situation, plan: str) -> Estimate | None:
        stats = self.rows.get(situation, {}).get(plan)
        return stats.estimate() if stats is not None and stats.count >= ENOUGH else None

    def estimate(
        self, plan: Plan, situation: Situation, plans: Mapping[str, Plan]
    ) -> Estimate | None:
        """Measured here; or elsewhere, and carried over; or guessed from another plan's time."""
        here = self.measured(situation, plan.fingerprint)
        return here or self._elsewhere(plan, situation) or self._guess(plan, situation, plans)

    def _elsewhere(self, plan: Plan, situation: Situation) -> Estimate | None:
        """The same plan on the same sizes beside other neighbours."""
        found = []
        for other in self.rows:
            seen = self.measured(other, plan.fingerprint)
            if seen is not None and other.signature == situation.signature:
                found.append((abs(other.neighbours - situation.neighbours), other, seen))
        if not found:
            return None
        _, other, seen = min(found, key=lambda entry: entry[0])
        factor = self._crowding(plan, situation) / self._crowding(plan, other)
        return _modelled(seen.mean_s * factor, UNSURE_ELSEWHERE)

    def _guess(
        self, plan: Plan, situation: Situation, plans: Mapping[str, Plan]
    ) -> Estimate | None:
        known = [(f, self.measured(situation, f)) for f in self.rows.get(situation, {})]
        usable = [(plans[f], seen) for f, seen in known if seen is not None and f in plans]
        if not usable:
            return None
        base, seen = max(usable, key=lambda entry: entry[1].count)
        unit_s = seen.mean_s / (self._weight(base) * self._crowding(base, situation))
        mean_s = unit_s * self._weight(plan) * self._crowding(plan, situation)
        return _modelled(mean_s, UNSURE_ANYHOW)

    def _weight(self, plan: Plan) -> float:
        """A plan's time on a quiet machine, relative to others'."""
        weights = [
            BACKEND_GUESS.get(r.rewrite.backend, 1.0) * (self.num_cores / self._threads(r)) ** 0.8
            for r in plan.regions
        ]
        return sum(weights) / len(weights)

    def _threads(self, region: Region) -> int:
        return min(region.rewrite.threads or self.num_cores, self.num_cores)

    def _crowding(self, plan: Plan, situation: Situation) -> float:
        """How much longer it takes beside neighbours: threads wait for the one that lost its core;
        eager's, at every op."""
        factors = []
        for region in plan.regions:
            wanted = self._threads(region) + situation.neighbours
            factor = max(1.0, wanted / self.num_cores)
            factors.append(factor**2 if region.rewrite.backend in ("eager", "inductor") else factor)
        return sum(factors) / len(factors)


def _modelled(mean_s: float, unsure: float) -> Estimate:
    return Estimate(mean_s=mean_s, deviation_s=mean_s * unsure, source=Source.MODELLED)
