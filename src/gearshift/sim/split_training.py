"""Trains the split agent in the simulator, and scores all players on regions and traces that nobody
trained on.

Must not know files or the command line.
"""

from collections import deque
from collections.abc import Iterator, Sequence
from functools import partial
from itertools import islice
from statistics import geometric_mean

import numpy as np

from gearshift.decide.learn.dqn import Dqn, Settings
from gearshift.decide.split.actions import NAMES
from gearshift.decide.split.agent import MOST
from gearshift.decide.split.players import Learned, Player, Unteachable, baselines
from gearshift.decide.split.view import INPUTS, foreseen
from gearshift.plan.objective import SplitWeights
from gearshift.sim.learning import (
    POINTS,
    TEST_SEED,
    Told,
    Trained,
    apart,
    copied,
    schooled,
    untold,
)
from gearshift.sim.profiles import Profile
from gearshift.sim.split_world import SplitWorld

EPISODE = 60
TEST_EPISODES = 40
SKEW = 0.15


def divided(profiles: Sequence[Profile]) -> tuple[list[Profile], list[Profile]]:
    """To train on, to test on: whatever the backend, a region is in one of them only."""
    return apart(profiles, lambda profile: profile.name)


def train(
    profiles: Sequence[Profile],
    *,
    seed: int,
    steps: int,
    settings: Settings | None = None,
    weights: SplitWeights | None = None,
    told: Told = untold,
    points: int = POINTS,
    episodes: int = TEST_EPISODES,
) -> Trained[Dqn]:
    train_on, test_on = divided(profiles)
    settings = settings or Settings(epsilon_steps=steps // 2, most=MOST)
    weights = weights or SplitWeights()
    prior = partial(foreseen, time=weights.time)
    dqn = Dqn.fresh(len(INPUTS), len(NAMES), seed, settings, prior)
    player = Learned(dqn, learning=True, time=weights.time)
    world = SplitWorld(train_on, np.random.default_rng(seed + 1), weights, SKEW)

    def scores(frozen: Dqn) -> tuple[float, float]:
        mine = partial(score, Learned(frozen), episodes=episodes)
        return mine(train_on, seed=seed + 2), mine(test_on, seed=seed + TEST_SEED)

    return schooled(
        _lived(player, world),
        partial(copied, dqn),
        scores,
        steps=steps,
        points=points,
        told=told,
    )


def _lived(player: Player, world: SplitWorld) -> Iterator[float]:
    """What each choice earns, episode after episode."""
    while True:
        view = world.reset()
        for _ in range(EPISODE):
            action = player.choose(view)
            stepped = world.step(action)
            player.learn(view, action, stepped.reward.total, stepped.view)
            view = stepped.view
            yield stepped.reward.total


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
    dqn: Dqn, profiles: Sequence[Profile], *, seed: int, steps: int, episodes: int = TEST_EPISODES
) -> dict[str, float]:
    """All players, best first, on what nobody trained on. Who learns as it goes is taught on the
    rest first, by so many choices, as the agent was."""
    train_on, test_on = divided(profiles)
    others = baselines(np.random.default_rng(seed))
    for player in others:
        if not isinstance(player, Unteachable):
            world = SplitWorld(train_on, np.random.default_rng(seed + 1), skew=SKEW)
            deque(islice(_lived(player, world), steps), maxlen=0)
    players: list[Player] = [*others, Learned(dqn)]
    found = {p.name: score(p, test_on, seed=seed, episodes=episodes) for p in players}
    return dict(sorted(found.items(), key=lambda entry: -entry[1]))
