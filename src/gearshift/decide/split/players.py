"""Who may choose a split, on equal terms: each sees a view and names an action.

Must not know whether the view is of a running model or of the simulator.
"""

from collections import defaultdict
from dataclasses import dataclass, field, replace
from math import log
from typing import Protocol

import numpy as np

from gearshift.decide.learn.dqn import Dqn
from gearshift.decide.policy import DQN, GREEDY, SHARE
from gearshift.decide.split.actions import ACTIONS, NAMES, SHARES
from gearshift.decide.split.view import SplitView, features, mask
from gearshift.plan.split import ROWS, Split

ALWAYS = "always "
SOMETIMES = 0.05
"""How often the bandit tries something else."""


class Player(Protocol):
    name: str

    def choose(self, view: SplitView) -> int: ...

    def settled(self, view: SplitView) -> int:
        """What it stays with if it may try nothing more."""

    def learn(self, view: SplitView, action: int, reward: float, after: SplitView) -> None: ...


class Unteachable:
    """Chooses the same whatever came of it."""

    __slots__ = ()

    def settled(self: Player, view: SplitView) -> int:
        return self.choose(view)

    def learn(self, view: SplitView, action: int, reward: float, after: SplitView) -> None:
        """Nothing to learn."""


@dataclass(slots=True)
class Fixed(Unteachable):
    """Always the same, where it is legal; else undivided."""

    action: int
    name: str = ""

    def __post_init__(self) -> None:
        self.name = f"{ALWAYS}{NAMES[self.action]}"

    def choose(self, view: SplitView) -> int:
        return self.action if NAMES[self.action] in view.estimates_s else 0


@dataclass(slots=True)
class Share(Unteachable):
    """Rows in the ratio nearest to that of the engines' speeds; undivided where rows are not."""

    name: str = SHARE

    def choose(self, view: SplitView) -> int:
        legal = [s for s in SHARES if str(Split(how=ROWS, shares=s)) in view.estimates_s]
        fast, slow = view.speeds
        if not legal:
            return 0 if fast >= slow else 1
        best = min(legal, key=lambda s: abs(log(s[0] / s[1]) - log(fast / slow)))
        return NAMES.index(str(Split(how=ROWS, shares=best)))


@dataclass(slots=True)
class Greedy(Unteachable):
    """What the profiling stage foresees to take least, corrected by what came of those tried: the
    agent before it learned anything."""

    name: str = GREEDY

    def choose(self, view: SplitView) -> int:
        return NAMES.index(min(view.estimates_s, key=lambda name: view.estimates_s[name]))


@dataclass(slots=True)
class Foreseen(Unteachable):
    """The same, whatever came of it."""

    name: str = "greedy, uncorrected"

    def choose(self, view: SplitView) -> int:
        return NAMES.index(min(view.foreseen_s, key=lambda name: view.foreseen_s[name]))


@dataclass(slots=True)
class Bandit:
    """The best mean reward so far in the same situation: the region, and who else is there."""

    random: np.random.Generator
    name: str = "bandit"
    means: dict[tuple[object, ...], dict[int, tuple[int, float]]] = field(
        default_factory=lambda: defaultdict(dict)
    )

    def choose(self, view: SplitView) -> int:
        legal = [index for index, name in enumerate(NAMES) if name in view.estimates_s]
        known = self.means[self._situation(view)]
        fresh = [index for index in legal if index not in known]
        if fresh:
            return min(fresh, key=lambda index: view.estimates_s[NAMES[index]])
        if self.random.random() < SOMETIMES:
            return int(self.random.choice(legal))
        return self.settled(view)

    def settled(self, view: SplitView) -> int:
        """The best of those tried here; what is in force, if none was."""
        known = self.means[self._situation(view)]
        tried = [index for index in sorted(known) if NAMES[index] in view.estimates_s]
        in_force = NAMES.index(view.in_force)
        return max(tried, key=lambda index: known[index][1], default=in_force)

    def learn(self, view: SplitView, action: int, reward: float, after: SplitView) -> None:
        known = self.means[self._situation(view)]
        count, mean = known.get(action, (0, 0.0))
        known[action] = (count + 1, mean + (reward - mean) / (count + 1))

    def _situation(self, view: SplitView) -> tuple[object, ...]:
        crowds = tuple(round(1 / speed - 1) for speed in view.speeds)
        return (view.kind, view.num_rows, view.flops, crowds)


@dataclass(slots=True)
class Learned:
    """A network's choice. Learns on if it may."""

    dqn: Dqn
    name: str = DQN
    learning: bool = False
    margin: float = 0.0
    """What is in force stays, unless another is thought to be worth so much more."""
    time: float = 1.0
    """The weight of time in the rewards it learns from."""

    def choose(self, view: SplitView) -> int:
        state, legal = features(view), mask(view)
        values = self.dqn.values(state, legal)
        if not np.isfinite(values[legal]).all():
            raise FloatingPointError("the agent's values are no numbers")
        best, stays = int(np.argmax(values)), NAMES.index(view.in_force)
        drawn = self.dqn.drawn(legal) if self.learning else None
        chosen = best if drawn is None else drawn
        hardly = legal[stays] and values[best] < values[stays] + self.margin
        return stays if chosen == best and hardly else chosen

    def settled(self, view: SplitView) -> int:
        return replace(self, learning=False).choose(view)

    def learn(self, view: SplitView, action: int, reward: float, after: SplitView) -> None:
        """Beyond what was foreseen of the best: how well a region can be divided at all, and who
        else is there, is not of the choice's making."""
        if self.learning:
            beyond = reward + self.time * log(min(view.estimates_s.values()) / view.alone_s)
            self.dqn.live(features(view), action, beyond, features(after), mask(after))


def baselines(random: np.random.Generator) -> list[Player]:
    return [
        *(Fixed(index) for index in range(len(ACTIONS))),
        Share(),
        Greedy(),
        Foreseen(),
        Bandit(random),
    ]
