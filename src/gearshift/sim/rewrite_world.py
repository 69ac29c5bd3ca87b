"""One region after the other whose rewrite is to be chosen: what is measured of it is noisy, and
ends when one of those measured is taken.

Must not know who chooses. All that is random comes from one generator.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from gearshift.decide.rewrite.actions import enough
from gearshift.decide.rewrite.reward import RewriteReward, RewriteWeights, rewrite_reward
from gearshift.decide.rewrite.view import RewriteView
from gearshift.plan.library import BY_NAME, Build
from gearshift.sim.rewrite_profiles import PLAIN, RegionProfile

NOISE = 0.03
"""Of one measurement, as a logarithm."""
AS_IT_COMES = 0.5
"""How likely a region runs by PyTorch's own kernels at first; else by anything quick to build."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Stepped:
    reward: RewriteReward
    view: RewriteView
    end: bool


@dataclass(slots=True)
class RewriteWorld:
    profiles: Sequence[RegionProfile]
    random: np.random.Generator
    weights: RewriteWeights = field(default_factory=RewriteWeights)
    skew: float = 0.0
    """How far each entry's time is moved in each episode, as a logarithm: to learn from, so that it
    is not the regions themselves that are learned."""
    profile: RegionProfile = field(init=False)
    runs_by: str = field(init=False)
    """The best known so far; in the end, what was chosen."""
    view: RewriteView = field(init=False)

    def reset(self) -> RewriteView:
        drawn = self.profiles[int(self.random.integers(len(self.profiles)))]
        self.profile = drawn if self.skew == 0 else self._skewed(drawn)
        self.runs_by = self._first()
        self.view = self._look(self.runs_by)
        return self.view

    def step(self, entry: str) -> Stepped:
        """A legal one."""
        before = self.view
        assert entry in before.legal, entry
        end = entry in before.seconds
        if not end:
            known_s = {**before.seconds, entry: self._measured_s(entry)}
            self.view = replace(before, seconds=known_s)
        self.runs_by = entry if end else self.view.best
        earned = rewrite_reward(self.weights, view=before, entry=entry, after=self.view)
        return Stepped(reward=earned, view=self.view, end=end or enough(self.view))

    @property
    def took_s(self) -> float:
        """What it really takes by what it runs by now."""
        return self.profile.seconds[self.runs_by]

    @property
    def oracle_s(self) -> float:
        """The same by the best entry there is."""
        return min(self.profile.seconds.values())

    @property
    def spent(self) -> tuple[str, ...]:
        """What was measured, beside the entry in force."""
        return tuple(name for name in self.view.seconds if name != self.view.in_force)

    def _skewed(self, profile: RegionProfile) -> RegionProfile:
        factors = np.exp(self.random.normal(0, self.skew, len(profile.seconds)))
        pairs = zip(profile.seconds.items(), map(float, factors), strict=True)
        return replace(profile, seconds={name: s * factor for (name, s), factor in pairs})

    def _first(self) -> str:
        quick = [n for n in self.profile.seconds if BY_NAME[n].build is not Build.SLOW]
        drawn = quick[int(self.random.integers(len(quick)))]
        return PLAIN if self.random.random() < AS_IT_COMES else drawn

    def _measured_s(self, entry: str) -> float:
        return self.profile.seconds[entry] * float(np.exp(self.random.normal(0, NOISE)))

    def _look(self, in_force: str) -> RewriteView:
        region = self.profile
        return RewriteView(
            kind=region.kind,
            num_ops=region.num_ops,
            flops=region.flops,
            moved_bytes=region.moved_bytes,
            set_bytes=region.set_bytes,
            read_bytes=region.read_bytes,
            made_bytes=region.made_bytes,
            compute_s=region.compute_s,
            memory_s=region.memory_s,
            in_force=in_force,
            legal=frozenset(region.seconds),
            seconds={in_force: self._measured_s(in_force)},
        )
