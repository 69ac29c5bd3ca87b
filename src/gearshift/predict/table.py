"""Measured times of whole plans by situation, and estimates for the gaps between them.

Must not know who measured. What is kept is a plan's time in a usual minute; what is told, its time
in this one.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from gearshift.ir.measurement import Source, is_sample
from gearshift.ir.roofline import Roofline
from gearshift.ir.snapshot import Sample, Situation
from gearshift.ir.topology import CALLER
from gearshift.ir.work import Work
from gearshift.plan.plan import Plan, Region
from gearshift.predict.calibration import Calibration
from gearshift.predict.estimate import Estimate
from gearshift.predict.minute import DRIFT, Minute
from gearshift.predict.roofline import least_s

MEMORY = 200
"""A running mean over about so many calls: what was long ago counts little."""
ENOUGH, WELL_KNOWN = 5, 20
MAX_SITUATIONS = 64
"""Those longest unseen are forgotten."""
GLIMPSE = 2
UNSURE_GLIMPSED, UNSURE_ELSEWHERE, UNSURE_ANYHOW = 0.3, 0.3, 0.45
BACKEND_GUESS = {"eager": 1.0, "inductor": 0.9, "onnxruntime": 0.7, "openvino": 0.65}
"""Time against eager on a quiet machine, before anything is known of the model (geometric means of
the built-in models on two cores)."""
UNROLL_GUESS = 0.7
"""The same of recurrent layers that are unrolled."""
ROOF_FACTOR = 2.5
"""How many times the least possible time a plan takes, before one was measured."""
APART = 0.7
"""As in `_waiting`: 1.0 to 1.3 times as long beside one neighbour."""
DOUBTED, PERSISTS = 2, 20
"""What a plan counts for that takes far longer than it used to, or shorter; after so many calls
that tell the same."""


@dataclass(slots=True)
class Stats:
    """A running mean of the logarithm, so that a call ten times as long moves it by a step."""

    count: int = 0
    mean: float = 0.0
    spread: float = 0.0

    def add(self, seconds: float) -> None:
        if not is_sample(seconds):
            return
        self.count += 1
        value, weight = math.log(seconds), 1 / min(self.count, MEMORY)
        step = value - self.mean
        self.mean += weight * step
        self.spread += weight * (step * step * (1 - weight) - self.spread)

    def forget(self, count: int) -> None:
        """What was learned counts for no more than so many calls from here on."""
        self.count = min(self.count, count)

    def estimate(self, minute: float) -> Estimate:
        mean_s = math.exp(self.mean) * minute
        deviation = math.sqrt(max(self.spread, 1e-4) / max(1, min(self.count, MEMORY)))
        return Estimate(
            mean_s=mean_s,
            deviation_s=mean_s * deviation,
            source=Source.MEASURED,
            count=self.count,
        )


class Table:
    def __init__(self, num_cores: int, calibration: Calibration | None = None) -> None:
        self.num_cores = num_cores
        self.calibration = calibration or Calibration()
        self.roofline: Roofline | None = None
        self.rows: dict[Situation, dict[str, Stats]] = {}
        self._minute = Minute()
        self._works: dict[str, Work] = {}
        self._odd: dict[tuple[Situation, str], int] = {}

    @property
    def minute(self) -> float:
        return self._minute.factor

    def add(self, sample: Sample) -> None:
        self._doubt(sample)
        if sample.work is not None:
            self._works[sample.situation.signature] = sample.work
        known = self.rows.pop(sample.situation, {})
        self.rows[sample.situation] = known
        while len(self.rows) > MAX_SITUATIONS:
            self._forget(next(iter(self.rows)))
        stats = known.setdefault(sample.plan, Stats())
        if stats.count >= WELL_KNOWN:
            self._tell_minute(sample, stats)
        for value in sample.seconds:
            stats.add(value / self.minute)

    def relate(
        self, situation: Situation, plan: str, other: str, times_as_fast: float, calls: int
    ) -> None:
        rows = self.rows.get(situation, {})
        if other in rows and math.isfinite(times_as_fast) and times_as_fast > 0:
            known = rows[other]
            mean = known.mean - math.log(times_as_fast)
            rows[plan] = Stats(count=calls, mean=mean, spread=known.spread)

    def usual_s(self, situation: Situation, plan: str) -> float | None:
        """What it takes in a usual minute."""
        stats = self.rows.get(situation, {}).get(plan)
        return None if stats is None else math.exp(stats.mean)

    def usual(self, sample: Sample) -> Sample:
        """As it would have been in a usual minute."""
        seconds = tuple(value / self.minute for value in sample.seconds)
        return replace(sample, seconds=seconds)

    def _tell_minute(self, sample: Sample, stats: Stats) -> None:
        logs = [math.log(value) for value in sample.seconds if is_sample(value)]
        if logs:
            expected = stats.mean + self._minute.value
            self._minute.add(sum(logs) / len(logs) - expected, len(logs))

    def situations(self) -> list[Situation]:
        return list(self.rows)

    def measured(self, situation: Situation, plan: str, least: int = ENOUGH) -> Estimate | None:
        """If it was at least so many calls."""
        stats = self.rows.get(situation, {}).get(plan)
        if stats is None or stats.count < least:
            return None
        return stats.estimate(self.minute)

    def estimate(
        self, plan: Plan, situation: Situation, plans: Mapping[str, Plan]
    ) -> Estimate | None:
        """Measured here; or elsewhere, and carried over; or guessed from another plan's time; or,
        where nothing was measured yet, from the roofline."""
        return (
            self.measured(situation, plan.fingerprint)
            or self._glimpsed(situation, plan)
            or self._elsewhere(plan, situation)
            or self._guess(plan, situation, plans)
            or self._from_roofline(plan, situation)
        )

    def _forget(self, situation: Situation) -> None:
        del self.rows[situation]
        self._odd = {key: count for key, count in self._odd.items() if key[0] != situation}
        if not any(other.signature == situation.signature for other in self.rows):
            self._works.pop(situation.signature, None)

    def _doubt(self, sample: Sample) -> None:
        """A plan that takes far longer than it used to, or shorter, is learned anew."""
        seen = self.measured(sample.situation, sample.plan)
        if seen is None:
            return
        odd = [s for s in sample.seconds if not seen.mean_s / DRIFT < s < seen.mean_s * DRIFT]
        before = self._odd.get((sample.situation, sample.plan), 0)
        count = before + len(odd) if 2 * len(odd) > len(sample.seconds) else 0
        if count >= PERSISTS:
            self.rows[sample.situation][sample.plan].forget(DOUBTED)
            count = 0
        self._odd[sample.situation, sample.plan] = count

    def _glimpsed(self, situation: Situation, plan: Plan) -> Estimate | None:
        """From a few calls, before it was taken out of service."""
        seen = self.measured(situation, plan.fingerprint, least=GLIMPSE)
        if seen is None:
            return None
        return replace(seen, deviation_s=max(seen.deviation_s, UNSURE_GLIMPSED * seen.mean_s))

    def _elsewhere(self, plan: Plan, situation: Situation) -> Estimate | None:
        """The same plan beside other neighbours; else on other sizes, where the roofline tells how
        much more work they are."""
        found = []
        for other in self.rows:
            seen = self.measured(other, plan.fingerprint)
            scale = self._scale(plan, situation, other)
            if seen is not None and scale is not None:
                apart = (other.signature != situation.signature, _apart(other, situation))
                found.append((apart, other, seen.mean_s * scale))
        if not found:
            return None
        _, other, mean_s = min(found, key=lambda entry: entry[0])
        factor = self._crowding(plan, situation) / self._crowding(plan, other)
        return self._modelled("elsewhere", plan, mean_s * factor, UNSURE_ELSEWHERE)

    def _scale(self, plan: Plan, situation: Situation, other: Situation) -> float | None:
        if other.signature == situation.signature:
            return 1.0
        here, there = self._least_s(plan, situation), self._least_s(plan, other)
        return here / there if here is not None and there is not None else None

    def _guess(
        self, plan: Plan, situation: Situation, plans: Mapping[str, Plan]
    ) -> Estimate | None:
        known = [(f, self.measured(situation, f)) for f in self.rows.get(situation, {})]
        usable = [(plans.get(f), seen) for f, seen in known if seen is not None]
        if not usable:
            return None
        base, seen = max(usable, key=lambda entry: entry[1].count)
        unit_s = seen.mean_s
        if base is not None:  # else a plan of the user's own: as good as eager
            unit_s /= self._weight(base) * self._crowding(base, situation)
        mean_s = unit_s * self._weight(plan) * self._crowding(plan, situation)
        return self._modelled("guess", plan, mean_s, UNSURE_ANYHOW)

    def _from_roofline(self, plan: Plan, situation: Situation) -> Estimate | None:
        least_s = self._least_s(plan, situation)
        if least_s is None:
            return None
        mean_s = ROOF_FACTOR * least_s * self._crowding(plan, situation)
        return self._modelled("roofline", plan, mean_s, UNSURE_ANYHOW)

    def _least_s(self, plan: Plan, situation: Situation) -> float | None:
        work = self._works.get(situation.signature)
        if self.roofline is None or work is None or not work.known:
            return None
        threads = max(map(self._threads, plan.regions))
        return least_s(work, self.roofline, threads)

    def _modelled(self, how: str, plan: Plan, raw_s: float, unsure: float) -> Estimate:
        """Corrected by what came of earlier ones of its kind."""
        largest = max(plan.regions, key=lambda region: len(region.ops))
        kind = f"{how} {largest.rewrite.backend}"
        mean_s = raw_s * self.calibration.factor(kind)
        return Estimate(
            mean_s=mean_s,
            deviation_s=mean_s * unsure,
            source=Source.MODELLED,
            raw_s=raw_s,
            kind=kind,
        )

    def _weight(self, plan: Plan) -> float:
        """A plan's time on a quiet machine, relative to others'."""
        weights = [_guess(r) * (self.num_cores / self._threads(r)) ** 0.8 for r in _main(plan)]
        return sum(weights) / len(weights)

    def _threads(self, region: Region) -> int:
        return min(region.threads or self.num_cores, self.num_cores)

    def _crowding(self, plan: Plan, situation: Situation) -> float:
        """How much longer it takes beside neighbours: threads wait for the one that lost its core;
        eager's, at every op, and busily."""
        factors = []
        for region in _main(plan):
            if region.split is not None and region.split.shares is None:
                factors.append(self._rest(situation))
                continue
            if region.rewrite.backend == "eager" and region.unroll is None:
                factors.append(self._sparing(situation))
                continue
            wanted = self._threads(region) + situation.neighbours
            crowd = max(1.0, wanted / self.num_cores)
            some = situation.neighbours < self.num_cores
            factors.append(crowd ** (APART if some and _is_apart(region) else _waiting(region)))
        return sum(factors) / len(factors)

    def _sparing(self, situation: Situation) -> float:
        """PyTorch itself leaves the others their cores, and shares the last one with them."""
        left = max(1, self.num_cores - situation.neighbours)
        return (self.num_cores / left) ** 0.8 * max(
            1.0, (left + situation.neighbours) / self.num_cores
        )

    def _rest(self, situation: Situation) -> float:
        """Shares that follow use what is left: half of each core that somebody else wants, too."""
        lost = min(situation.neighbours, self.num_cores) / 2
        return self.num_cores / (self.num_cores - lost)


def _main(plan: Plan) -> Sequence[Region]:
    """The regions that stand for all of it: recurrent layers that are unrolled, if there are some;
    most of the time is in them."""
    return [region for region in plan.regions if region.unroll is not None] or plan.regions


def _guess(region: Region) -> float:
    if region.unroll is not None:
        return UNROLL_GUESS
    return BACKEND_GUESS.get(region.rewrite.backend, 1.0)


def _is_apart(region: Region) -> bool:
    """Whether the calling thread has a core to itself, if there is one: then it waits less."""
    rewrite = region.rewrite
    return rewrite.backend == "onnxruntime" and not rewrite.spin and region.engine == CALLER


def _waiting(region: Region) -> float:
    """How hard its threads wait for each other (fitted to the built-in models on two cores beside
    one neighbour: 1.3 to 2 times as long, 2.9 spinning, 1.4 to 17 in OpenMP)."""
    if region.rewrite.backend == "inductor":
        return 4.0
    return 2.5 if region.rewrite.spin else 1.5


def _apart(one: Situation, other: Situation) -> int:
    return abs(one.neighbours - other.neighbours)
