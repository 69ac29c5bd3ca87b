"""Who may choose a region's rewrite, on equal terms: each sees a view and names an entry. One that
was not measured is measured next; one that was is what the region runs by from now on.

Must not know whether the view is of a running model or of the simulator.
"""

from collections import defaultdict
from dataclasses import dataclass, field
from math import log, sqrt
from typing import Protocol

import numpy as np

from gearshift.decide.learn.dqn import Dqn
from gearshift.decide.policy import DQN
from gearshift.decide.rewrite.actions import ENTRIES, INDEX
from gearshift.decide.rewrite.reward import RewriteWeights, price
from gearshift.decide.rewrite.state import features, mask
from gearshift.decide.rewrite.view import RewriteView
from gearshift.decide.split.players import ALWAYS
from gearshift.plan.library import LIBRARY, Build, Tag

SPREAD = 0.3
"""How far what an entry gains usually lies from nothing, as a logarithm."""
WORST = 2.0
"""No entry is taken to lose more."""


class Player(Protocol):
    name: str

    def choose(self, view: RewriteView) -> str: ...

    def learn(
        self, view: RewriteView, entry: str, reward: float, after: RewriteView, *, end: bool
    ) -> None: ...


class Unteachable:
    """Chooses the same whatever came of it."""

    __slots__ = ()

    def learn(
        self, view: RewriteView, entry: str, reward: float, after: RewriteView, *, end: bool
    ) -> None:
        """Nothing to learn."""


@dataclass(slots=True)
class Measured(Unteachable):
    """Measures all that is not slow to build, then takes the best."""

    name: str = "measured greedy"

    def choose(self, view: RewriteView) -> str:
        quick = [entry.name for entry in LIBRARY if entry.build is not Build.SLOW]
        fresh = [name for name in quick if name in view.legal and name not in view.seconds]
        return fresh[0] if fresh else view.best


@dataclass(slots=True)
class OneBackend(Unteachable):
    """Always the same, where it is legal; else what is in force."""

    entry: str
    name: str = ""

    def __post_init__(self) -> None:
        self.name = f"{ALWAYS}{self.entry}"

    def choose(self, view: RewriteView) -> str:
        return self.entry if self.entry in view.legal else view.in_force


@dataclass(slots=True)
class Rule(Unteachable):
    """What works on arithmetic where that is what takes long, what works on memory elsewhere; where
    there is none, what works on both. The first such entry of the library, whatever it takes; if
    one of them is in force, it stays."""

    name: str = "rule"

    def choose(self, view: RewriteView) -> str:
        wanted = Tag.COMPUTE if view.compute_bound else Tag.MEMORY
        for tag in (wanted, Tag.HYBRID):
            fitting = [
                entry.name
                for entry in LIBRARY
                if entry.tag is tag and entry.build is not Build.NONE and entry.name in view.legal
            ]
            if fitting:
                return view.in_force if view.in_force in fitting else fitting[0]
        return view.in_force


@dataclass(slots=True)
class Bandit:
    """Thompson sampling: what each entry gained so far in regions of the same kind, drawn anew as
    far as it is unsure. Measures the best drawn, as long as that beats what is known here."""

    random: np.random.Generator
    name: str = "bandit"
    weights: RewriteWeights = field(default_factory=RewriteWeights)
    gains: dict[tuple[object, ...], dict[str, tuple[int, float]]] = field(
        default_factory=lambda: defaultdict(dict)
    )
    """How often an entry was measured, and its mean gain over the one in force."""

    def choose(self, view: RewriteView) -> str:
        known = self.gains[_situation(view)]
        fresh = [name for name in ENTRIES if name in view.legal and name not in view.seconds]
        hopes = {name: self._hope(name, *known.get(name, (0, 0.0))) for name in fresh}
        best = max(hopes, key=lambda name: hopes[name], default=None)
        gained = log(view.seconds[view.in_force] / view.seconds[view.best])
        return view.best if best is None or hopes[best] <= gained else best

    def learn(
        self, view: RewriteView, entry: str, reward: float, after: RewriteView, *, end: bool
    ) -> None:
        if entry in view.seconds:
            return
        lost = log(after.seconds[entry] / after.seconds[after.in_force])
        known = self.gains[_situation(view)]
        count, mean = known.get(entry, (0, 0.0))
        known[entry] = (count + 1, mean + (-min(WORST, lost) - mean) / (count + 1))

    def _hope(self, name: str, count: int, mean: float) -> float:
        """Before anything was measured, nothing is gained on average."""
        sure = count / (count + 1)
        unsure = SPREAD / sqrt(count + 1) * float(self.random.standard_normal())
        return sure * mean + unsure - price(self.weights, name)


def _situation(view: RewriteView) -> tuple[object, ...]:
    return (view.kind, view.compute_bound, view.in_force)


@dataclass(slots=True)
class Learned:
    """A network's choice. Learns on if it may."""

    dqn: Dqn
    name: str = DQN
    learning: bool = False

    def choose(self, view: RewriteView) -> str:
        state, legal = features(view), mask(view)
        if not legal.any():  # what is best is none of the library's
            return view.best
        if not np.isfinite(self.dqn.values(state, legal)[legal]).all():
            raise FloatingPointError("the agent's values are no numbers")
        act = self.dqn.act if self.learning else self.dqn.best
        return ENTRIES[act(state, legal)]

    def learn(
        self, view: RewriteView, entry: str, reward: float, after: RewriteView, *, end: bool
    ) -> None:
        """From what others chose, too, if it is of the library."""
        if self.learning and entry in INDEX:
            state, then = features(view), features(after)
            self.dqn.live(state, INDEX[entry], reward, then, mask(after), end=end)


def baselines(random: np.random.Generator) -> list[Player]:
    backends = [OneBackend(entry.name) for entry in LIBRARY if not entry.option]
    return [*backends, Rule(), Measured(), Bandit(random)]
