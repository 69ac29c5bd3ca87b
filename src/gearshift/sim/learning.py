"""How an agent learns in the simulator: it lives, is looked at every so many steps, and the best of
it is kept.

Must not know what it decides.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from statistics import fmean
from typing import Generic, TypeVar

from gearshift.decide.learn.dqn import Dqn

P = TypeVar("P")
A = TypeVar("A")
"""An agent, of whatever algorithm."""
HELD_OUT = 4
"""Every fourth is not trained on."""
POINTS = 20
TEST_SEED = 1000
"""Added to the seed: what is compared on traces so drawn was neither trained on them nor chosen by
them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Point:
    """Of the learning curve."""

    step: int
    of_oracle: float
    """On regions and traces it is not trained on: the oracle's time over its own, geometric
    mean."""
    reward: float
    """Of the last episodes it trained on."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Trained(Generic[A]):
    agent: A
    curve: tuple[Point, ...]
    kept: Point
    """Whose network this is."""


Told = Callable[[Point], None]


def untold(point: Point) -> None:
    """To nobody."""


def apart(profiles: Sequence[P], name: Callable[[P], str]) -> tuple[list[P], list[P]]:
    """To train on, to test on: those of the same name are in one of them only."""
    names = list(dict.fromkeys(map(name, profiles)))
    held_out = set(names[HELD_OUT - 1 :: HELD_OUT])
    test = [profile for profile in profiles if name(profile) in held_out]
    return [profile for profile in profiles if name(profile) not in held_out], test


def copied(dqn: Dqn) -> Dqn:
    """As it is now: it learns nothing more, and remembers nothing."""
    return Dqn(dqn.online.copy(), dqn.settings, prior=dqn.prior)


def schooled(
    lived: Iterator[float],
    frozen: Callable[[], A],
    scores: Callable[[A], tuple[float, float]],
    *,
    steps: int,
    points: int = POINTS,
    told: Told = untold,
) -> Trained[A]:
    """`lived` is what each choice of an agent earns while it learns; `frozen` is the agent as it is
    then; `scores` tells how well that does on what it is trained on, and its share of the oracle on
    what it is not. Keeps the one that did best on the former."""
    curve: list[Point] = []
    best: tuple[float, A, Point] | None = None
    every = max(1, steps // points)
    rewards: list[float] = []
    for step, reward in enumerate(islice(lived, steps), 1):
        rewards.append(reward)
        if step % every == 0:
            agent = frozen()
            known, unknown = scores(agent)
            curve.append(Point(step=step, of_oracle=unknown, reward=fmean(rewards[-every:])))
            told(curve[-1])
            if best is None or known > best[0]:
                best = known, agent, curve[-1]
    assert best is not None
    return Trained(agent=best[1], curve=tuple(curve), kept=best[2])
