"""Who may choose a layer's setting, on equal terms: each sees a view and names an action.

Must not know whether the view is of a running model or of the simulator.
"""

from collections import defaultdict
from dataclasses import dataclass, field
from typing import Protocol

import numpy as np

from gearshift.decide.learn.ppo import Actor, Lived, Rollout
from gearshift.decide.policy import GREEDY, PPO
from gearshift.decide.split.players import ALWAYS, SOMETIMES
from gearshift.decide.unroll.actions import (
    CHOICE,
    CHOICES,
    MAX_LAYERS,
    STAY,
    applied,
    mask,
    number_of,
)
from gearshift.decide.unroll.state import features
from gearshift.decide.unroll.view import Settings, UnrollView
from gearshift.plan.unroll import Steps

HOLD = 10
"""Calls for which the bandit stays with what it drew."""
MANY_ROWS, WIDE_LAYER = 8, 256
Key = tuple[object, ...]


class Player(Protocol):
    name: str
    start: Steps | None
    """What all layers begin with, as far as there is memory; None: as they come."""

    def choose(self, view: UnrollView) -> int: ...

    def learn(self, view: UnrollView, action: int, reward: float, after: UnrollView) -> None: ...


@dataclass(slots=True)
class Fixed:
    """One setting for all layers, from beginning to end."""

    start: Steps | None
    name: str = ""

    def __post_init__(self) -> None:
        self.name = f"{ALWAYS}{self.start}"

    def choose(self, view: UnrollView) -> int:
        return STAY

    def learn(self, view: UnrollView, action: int, reward: float, after: UnrollView) -> None:
        """Nothing to learn."""


@dataclass(slots=True)
class Greedy:
    """Tries the next larger and the next smaller setting of each layer, one after the other, stays
    where a call took less, and goes back where it did not."""

    name: str = GREEDY
    start: Steps | None = None
    took: dict[Key, tuple[int, float]] = field(default_factory=dict)
    """By place and settings: how often, and the mean over the reference."""
    homes: dict[Key, Settings] = field(default_factory=dict)
    """By place, the best so far of those on the way."""

    def choose(self, view: UnrollView) -> int:
        place, now, legal = _place(view), view.settings, mask(view)
        if (place, now) not in self.took:
            return STAY
        home = self.homes[place] = self._home(place, now)
        for layer, steps in enumerate(home[:MAX_LAYERS]):
            if steps != now[layer]:
                back = number_of(layer, steps)
                return back if legal[back] else STAY
        near = [action for action in _next_to(now) if legal[action]]
        fresh = (action for action in near if (place, applied(now, action)) not in self.took)
        return next(fresh, STAY)

    def learn(self, view: UnrollView, action: int, reward: float, after: UnrollView) -> None:
        """From calls that had one setting from beginning to end."""
        if action != STAY or after.took_s.value is None:
            return
        key, ratio = (_place(view), view.settings), after.took_s.value / after.reference_s
        count, mean = self.took.get(key, (0, 0.0))
        self.took[key] = (count + 1, mean + (ratio - mean) / (count + 1))

    def _home(self, place: Key, now: Settings) -> Settings:
        """Unless it is one step away and took less, it is here."""
        home = self.homes.get(place, now)
        off = [a for a, b in zip(home, now, strict=True) if a != b]
        near = len(off) == 1 and off[0] in CHOICE
        return home if near and self.took[place, home][1] < self.took[place, now][1] else now


def _place(view: UnrollView) -> Key:
    calls = (view.num_rows, view.num_steps, view.inputs, view.num_engines, view.num_threads)
    return (view.stack, *calls)


def _next_to(settings: Settings) -> list[int]:
    """The actions that take a layer to the choice before or after its own."""
    found = []
    for layer, steps in enumerate(settings[:MAX_LAYERS]):
        index = CHOICE.get(steps)
        beside = () if index is None else (index + 1, index - 1)
        found += [number_of(layer, CHOICES[i]) for i in beside if 0 <= i < len(CHOICES)]
    return found


@dataclass(slots=True)
class Bandit:
    """One setting for all layers: the best mean reward so far in calls of the same kind, now and
    then another; for some calls at least."""

    random: np.random.Generator
    name: str = "bandit"
    start: Steps | None = None
    means: dict[Key, dict[Steps, tuple[int, float]]] = field(
        default_factory=lambda: defaultdict(dict)
    )
    _drawn: tuple[Key, Steps] | None = None
    _calls_left: int = 0

    def choose(self, view: UnrollView) -> int:
        kind = _kind(view)
        if self._drawn is None or self._drawn[0] != kind or self._calls_left == 0:
            self._drawn, self._calls_left = (kind, self._draw(view)), HOLD
        self._calls_left -= 1
        return toward(view, self._drawn[1])

    def learn(self, view: UnrollView, action: int, reward: float, after: UnrollView) -> None:
        """From calls in which all layers had the same setting from the beginning."""
        first = view.settings[0]
        if action != STAY or first not in CHOICE or set(view.settings) != {first}:
            return
        known = self.means[_kind(view)]
        count, mean = known.get(first, (0, 0.0))
        known[first] = (count + 1, mean + (reward - mean) / (count + 1))

    def _draw(self, view: UnrollView) -> Steps:
        fitting = [steps for steps in CHOICES if fits_alike(view, steps)] or list(CHOICES[:1])
        known = self.means[_kind(view)]
        fresh = [steps for steps in fitting if steps not in known]
        if fresh or self.random.random() < SOMETIMES:
            return fresh[0] if fresh else fitting[int(self.random.integers(len(fitting)))]
        return max(fitting, key=lambda steps: known[steps][1])


def _kind(view: UnrollView) -> Key:
    sizes = (view.num_rows > MANY_ROWS, view.stack.hidden_size >= WIDE_LAYER)
    return (view.inputs, view.num_engines, *sizes)


def fits_alike(view: UnrollView, steps: Steps) -> bool:
    """Whether all layers may have this setting."""
    limit = view.memory_limit_bytes
    settings = (steps,) * len(view.layers)
    return limit is None or view.footprint.held_bytes(settings) <= limit


def toward(view: UnrollView, steps: Steps) -> int:
    """The next action on the way to this setting for all layers."""
    legal = mask(view)
    for layer, now in enumerate(view.settings[:MAX_LAYERS]):
        action = number_of(layer, steps)
        if now != steps and legal[action]:
            return action
    return STAY


@dataclass(slots=True)
class Learned:
    """A policy's choice; epsilon-greedy, if it may explore."""

    actor: Actor
    name: str = PPO
    start: Steps | None = None
    rollout: Rollout | None = None
    """Where what it lives through is collected, to be taught from."""

    def choose(self, view: UnrollView) -> int:
        return self.actor.act(features(view), mask(view))

    def learn(self, view: UnrollView, action: int, reward: float, after: UnrollView) -> None:
        if self.rollout is not None:
            lived = Lived(
                state=features(view),
                mask=mask(view),
                action=action,
                reward=reward,
                next_state=features(after),
            )
            self.rollout.add(lived)


def baselines(random: np.random.Generator) -> list[Player]:
    return [*(Fixed(steps) for steps in CHOICES), Greedy(), Bandit(random)]
