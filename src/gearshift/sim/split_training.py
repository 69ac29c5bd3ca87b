"""Trains the split agent in the simulator, and scores all players on regions and traces that nobody
trained on.

Must not know files or the command line.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from statistics import fmean, geometric_mean

import numpy as np

from gearshift.decide.learn.dqn import Dqn, Settings
from gearshift.decide.split.actions import NAMES
from gearshift.decide.split.players import Learned, Player, baselines
from gearshift.decide.split.view import INPUTS, foreseen
from gearshift.plan.objective import SplitWeights
from gearshift.sim.profiles import Profile
from gearshift.sim.split_world import SplitWorld

EPISODE = 60
HELD_OUT = 4
"""Every fourth region is not trained on."""
TEST_EPISODES, POINTS = 40, 20
SKEW = 0.15


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
class Trained:
    dqn: Dqn
    curve: tuple[Point, ...]


def divided(profiles: Sequence[Profile]) -> tuple[list[Profile], list[Profile]]:
    """To train on, to test on: whatever the backend, a region is in one of them only."""
    names = list(dict.fromkeys(profile.name for profile in profiles))
    held_out = set(names[HELD_OUT - 1 :: HELD_OUT])
    test = [profile for profile in profiles if profile.name in held_out]
    return [profile for profile in profiles if profile.name not in held_out], test


def train(
    profiles: Sequence[Profile],
    *,
    seed: int,
    steps: int,
    settings: Settings | None = None,
    weights: SplitWeights | None = None,
    told: Callable[[Point], None] = lambda point: None,
    points: int = POINTS,
    episodes: int = TEST_EPISODES,
) -> Trained:
    """Keeps the network of the point that did best on the regions trained on."""
    train_on, test_on = divided(profiles)
    settings = settings or Settings(epsilon_steps=steps // 2)
    dqn = Dqn.fresh(len(INPUTS), len(NAMES), seed, settings, foreseen)
    player = Learned(dqn, learning=True)
    world = SplitWorld(train_on, np.random.default_rng(seed + 1), weights or SplitWeights(), SKEW)
    curve: list[Point] = []
    best: tuple[float, Dqn] | None = None
    every = max(1, steps // points)
    rewards: list[float] = []
    view = world.reset()
    for step in range(1, steps + 1):
        action = player.choose(view)
        stepped = world.step(action)
        player.learn(view, action, stepped.reward.total, stepped.view)
        rewards.append(stepped.reward.total)
        view = world.reset() if step % EPISODE == 0 else stepped.view
        if step % every == 0:
            frozen = Dqn(dqn.online.copy(), settings, prior=foreseen)
            scores = [
                score(Learned(frozen), on, seed=seed + 2, episodes=episodes)
                for on in (train_on, test_on)
            ]
            curve.append(Point(step=step, of_oracle=scores[1], reward=fmean(rewards[-every:])))
            told(curve[-1])
            if best is None or scores[0] > best[0]:
                best = scores[0], frozen
    assert best is not None
    return Trained(dqn=best[1], curve=tuple(curve))


def score(
    player: Player, profiles: Sequence[Profile], *, seed: int, episodes: int = TEST_EPISODES
) -> float:
    """The oracle's time over the player's, over episodes that are the same for all players."""
    ratios = []
    for episode in range(episodes):
        world = SplitWorld(profiles, np.random.default_rng((seed, episode)))
        view = world.reset()
        took_s = oracle_s = 0.0
        for _ in range(EPISODE):
            action = player.choose(view)
            stepped = world.step(action)
            player.learn(view, action, stepped.reward.total, stepped.view)
            took_s, oracle_s, view = (
                took_s + stepped.took_s,
                oracle_s + stepped.oracle_s,
                stepped.view,
            )
        ratios.append(oracle_s / took_s)
    return geometric_mean(ratios)


def standings(
    dqn: Dqn, profiles: Sequence[Profile], *, seed: int, episodes: int = TEST_EPISODES
) -> dict[str, float]:
    """All players, best first, on what nobody trained on."""
    _, test_on = divided(profiles)
    players: list[Player] = [*baselines(np.random.default_rng(seed)), Learned(dqn)]
    found = {p.name: score(p, test_on, seed=seed, episodes=episodes) for p in players}
    return dict(sorted(found.items(), key=lambda entry: -entry[1]))
