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
from gearshift.decide.split.view import INPUTS
from gearshift.sim.profiles import Profile
from gearshift.sim.split_world import SplitWorld

EPISODE = 60
HELD_OUT = 4
"""Every fourth region is not trained on."""
TEST_EPISODES = 40


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
    """To train on, to test on."""
    test = [p for index, p in enumerate(profiles) if index % HELD_OUT == HELD_OUT - 1]
    return [p for p in profiles if p not in test], test


def train(
    profiles: Sequence[Profile],
    *,
    seed: int,
    steps: int,
    settings: Settings | None = None,
    told: Callable[[Point], None] = lambda point: None,
    points: int = 20,
    episodes: int = TEST_EPISODES,
) -> Trained:
    """Keeps the network of the point that did best on the regions trained on."""
    train_on, test_on = divided(profiles)
    settings = settings or Settings(epsilon_steps=steps // 2)
    dqn = Dqn.fresh(len(INPUTS), len(NAMES), seed, settings)
    player = Learned(dqn, learning=True)
    world = SplitWorld(train_on, np.random.default_rng(seed + 1))
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
            frozen = Dqn(dqn.online.copy(), settings)
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


def standings(dqn: Dqn, profiles: Sequence[Profile], *, seed: int) -> dict[str, float]:
    """All players, best first, on what nobody trained on."""
    _, test_on = divided(profiles)
    players: list[Player] = [*baselines(np.random.default_rng(seed)), Learned(dqn)]
    found = {player.name: score(player, test_on, seed=seed) for player in players}
    return dict(sorted(found.items(), key=lambda entry: -entry[1]))
