"""A stack of recurrent layers that is called again and again while neighbours come and go: before
each call one layer's setting may be changed, which it is somewhere in the middle of the sequence.

Must not know who chooses. Calls are as they were drawn; only readings are drawn here.
"""

from dataclasses import dataclass, field
from statistics import fmean

import numpy as np

from gearshift.decide.unroll.actions import ACTIONS, applied, mask
from gearshift.decide.unroll.constraints import Constraints, Discipline
from gearshift.decide.unroll.reward import UnrollReward, UnrollWeights, unroll_reward
from gearshift.decide.unroll.view import UNKNOWN, LayerView, Settings, UnrollView
from gearshift.ir.measurement import Metric, Source
from gearshift.plan.unroll import Steps
from gearshift.sim.unroll_cases import Case, Episode
from gearshift.sim.unroll_course import Call, Ran

SWITCH_S = 5e-5
"""What a change costs."""
READING_NOISE = 0.03
USUAL_STEPS = 16
"""Of the chunk that tells what a chunk costs beyond its steps."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Stepped:
    took_s: float
    reward: UnrollReward
    view: UnrollView
    end: bool


@dataclass(slots=True)
class UnrollWorld:
    random: np.random.Generator
    weights: UnrollWeights = field(default_factory=UnrollWeights)
    constraints: Constraints = field(default_factory=Constraints)
    episode: Episode = field(init=False)
    settings: Settings = field(init=False)
    view: UnrollView = field(init=False)
    num_switches: int = 0
    _discipline: Discipline = field(init=False)
    _number: int = 0
    """Of the last call."""

    def begin(self, episode: Episode, start: Steps | None = None) -> UnrollView:
        """After the first call; with this setting for all layers, as far as there is memory."""
        self.episode, self._number, self.num_switches = episode, 0, 0
        self.settings = episode.start if start is None else episode.case.alike(start)
        self._discipline = Discipline(len(self.settings), self.constraints)
        ran = self.case.run(self.call, self.settings, self.settings)
        self.view = self._look(ran, ran.took_s * self.call.noise)
        return self.view

    @property
    def case(self) -> Case:
        return self.episode.case

    @property
    def call(self) -> Call:
        """The last."""
        return self.episode.calls[self._number]

    def step(self, action: int) -> Stepped:
        """What is illegal changes nothing."""
        legal, before = bool(mask(self.view)[action]), self.settings
        if legal:
            self._choose(action)
        self._number += 1
        ran = self.case.run(self.call, before, self.settings)
        switch_s = SWITCH_S if self.settings != before else 0.0
        took_s = ran.took_s * self.call.noise + switch_s
        self._discipline.called()
        self.view = self._look(ran, took_s)
        reward = self._earned(took_s, before, self.settings)
        end = self._number + 1 == len(self.episode.calls)
        return Stepped(took_s=took_s, reward=reward, view=self.view, end=end)

    def _choose(self, action: int) -> None:
        chosen = ACTIONS[action]
        if chosen is not None:
            self.settings = applied(self.settings, action)
            self._discipline.switched(chosen.layer)
            self.num_switches += 1

    def would_earn(self, steps: Steps) -> float:
        """The last call, if all layers had had this setting before it and in it, as far as there is
        memory."""
        settings = self.case.alike(steps)
        ran = self.case.run(self.call, settings, settings)
        return self._earned(ran.took_s * self.call.noise, settings, settings).total

    def _earned(self, took_s: float, before: Settings, after: Settings) -> UnrollReward:
        needs = self.case.footprint
        hits = [self.case.hit_share(i, steps) for i, steps in enumerate(after)]
        known = [share for share in hits if share is not None]
        return unroll_reward(
            self.weights,
            took_s=took_s,
            reference_s=self.case.reference_s(self.call),
            held_bytes=max(needs.held_bytes(settings) for settings in (before, after)),
            memory_limit_bytes=self.case.memory_limit_bytes,
            hit_share=fmean(known) if known else None,
        )

    def _look(self, ran: Ran, took_s: float) -> UnrollView:
        case, call, discipline = self.case, self.call, self._discipline
        pace = case.plain_paces[-1]
        return UnrollView(
            stack=case.stack,
            num_rows=case.num_rows,
            num_steps=case.num_steps,
            filled_share=call.filled_share,
            inputs=case.inputs,
            num_engines=len(case.engines),
            num_threads=len(case.engines[0]),
            layers=tuple(self._layer(ran, layer) for layer in range(case.stack.num_layers)),
            reference_s=case.reference_s(call),
            took_s=Metric(value=took_s, source=Source.MEASURED),
            call_s=self._measured(pace.call_s(USUAL_STEPS, call.num_rows)),
            memory_limit_bytes=case.memory_limit_bytes,
            dwell_calls=discipline.constraints.dwell_calls,
            switches_left=discipline.switches_left,
        )

    def _layer(self, ran: Ran, layer: int) -> LayerView:
        case, steps, needs = self.case, self.settings[layer], self.case.footprint
        engine = next(member for member, group in enumerate(case.groups) if layer in group)
        cores = case.engines[engine]
        held = needs.made_bytes / case.stack.num_layers + needs.chunk_bytes(steps)
        hits = case.hit_share(layer, steps)
        delay = self.call.crowd.delay_share(cores, ran.took_s)
        return LayerView(
            steps=steps,
            calls_kept=self._discipline.calls_kept[layer],
            engine=engine,
            step_s=self._measured(ran.layers_s[layer] / self.call.num_steps),
            held_bytes=Metric(value=held, source=Source.MODELLED),
            busy_share=self._share(ran.busy_s[engine] / ran.took_s),
            run_delay_share=self._share(delay) if len(cores) == 1 else UNKNOWN,
            hit_share=UNKNOWN if hits is None else Metric(value=hits, source=Source.MODELLED),
        )

    def _measured(self, seconds: float) -> Metric:
        noise = float(np.exp(self.random.normal(0, READING_NOISE)))
        return Metric(value=seconds * noise, source=Source.MEASURED)

    def _share(self, value: float) -> Metric:
        noisy = value + float(self.random.normal(0, READING_NOISE))
        return Metric(value=min(1.0, max(0.0, noisy)), source=Source.MEASURED)
