"""What a player settles on, after looks at a region while its last choice runs.

Must not know who plays, nor what is made of the choice.
"""

import statistics
from collections.abc import Mapping
from contextlib import closing
from dataclasses import dataclass, field, replace
from functools import partial
from time import perf_counter
from typing import Protocol

from gearshift.bench.divided import Divided, timed
from gearshift.decide.split.actions import BOTH, NAMES
from gearshift.decide.split.players import Player, Unteachable
from gearshift.decide.split.profiling import Experience, seen
from gearshift.decide.split.sight import earned, engines_of
from gearshift.decide.split.view import SplitView
from gearshift.ir.measurement import Metric
from gearshift.ir.roofline import Roofline
from gearshift.ir.snapshot import Sample, Situation, Snapshot
from gearshift.observe.hal import open_hal
from gearshift.observe.sampler import mean_parts
from gearshift.plan.objective import SplitWeights

LOOK_S = 0.1
MORE_LOOKS = 3
"""Beyond those that it takes to try every way once, for who learns from that."""


class Looks(Protocol):
    def first(self) -> SplitView:
        """Before anything is chosen."""

    def after(self, view: SplitView, action: int) -> tuple[SplitView, float]:
        """What is seen once this was chosen and ran, and what it earned."""


def choice_of(player: Player, looks: Looks) -> str:
    view = looks.first()
    to_try = 0 if isinstance(player, Unteachable) else len(view.estimates_s)
    for _ in range(to_try + MORE_LOOKS):
        action = player.choose(view)
        after, reward = looks.after(view, action)
        player.learn(view, action, reward, after)
        view = after
    return NAMES[player.settled(view)]


@dataclass(slots=True)
class EngineLooks:
    """At real engines, by the counters that a running model is seen by."""

    region: Divided
    roofline: Roofline
    alone_s: float
    """What one undisturbed engine takes."""
    experience: Experience = field(default_factory=Experience)

    def first(self) -> SplitView:
        usual = NAMES[BOTH] in self.region.ready
        action = BOTH if usual else NAMES.index(next(iter(self.region.ready)))
        return self._view(action, *self._ran(action))

    def after(self, view: SplitView, action: int) -> tuple[SplitView, float]:
        sample, readings = self._ran(action)
        region, plan = self.region, self.region.ready[NAMES[action]].executor.plan
        reward = earned(sample, plan, action, region.subject, self.alone_s, SplitWeights())
        return self._view(action, sample, readings), reward.total

    def _ran(self, action: int) -> tuple[Sample, Mapping[str, Metric]]:
        """For as long as a look takes; the first call, when other threads may still spin, does not
        count."""
        prepared, call = self.region.ready[NAMES[action]], partial(self.region.call, NAMES[action])
        with closing(open_hal(roofline=self.roofline)) as counters:
            for name, thread in self.region.runtime._pool.threads().items():
                counters.watch_thread(name, thread)
            call()
            counters.read()
            took_s: list[float] = []
            end_s = perf_counter() + LOOK_S
            while perf_counter() < end_s:
                took_s += timed(call, 1)
            calls = list(prepared.executor.timings())[-len(took_s) :]
            for timing in calls:
                if timing.label.work is not None:
                    counters.note(replace(timing.label.work, seconds=timing.call_s))
            readings = counters.read()
        sample = Sample(
            plan=prepared.executor.plan.fingerprint,
            situation=Situation(signature=self.region.name, neighbours=0),
            seconds=tuple(took_s),
            parts=mean_parts([timing.parts for timing in calls]),
        )
        return sample, readings

    def _view(self, action: int, sample: Sample, readings: Mapping[str, Metric]) -> SplitView:
        """What calls on it took is known from here on."""
        snapshot = Snapshot(
            at_s=0.0,
            plan=sample.plan,
            trial=None,
            situation=sample.situation,
            samples=(sample,),
            readings=readings,
        )
        subject = self.region.subject
        engines = engines_of(snapshot, subject, self.roofline.dram_bytes_s)
        took_s = statistics.fmean(sample.seconds)
        self.experience.see(engines)
        self.experience.note(subject, engines, action, alone_s=self.alone_s, took_s=took_s)
        return seen(
            subject,
            engines,
            in_force=action,
            legal=[NAMES.index(name) for name in self.region.ready],
            alone_s=self.alone_s,
            experience=self.experience,
        )
