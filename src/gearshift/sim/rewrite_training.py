"""Trains the rewrite agent in the simulator, and scores all players on models that nobody trained
on.

Must not know files or the command line.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from math import log
from statistics import fmean, geometric_mean

import numpy as np

from gearshift.decide.learn.dqn import Dqn, Settings
from gearshift.decide.rewrite.actions import ENTRIES
from gearshift.decide.rewrite.players import Learned, Player, baselines
from gearshift.decide.rewrite.reward import DISCOUNT, RewriteWeights
from gearshift.decide.rewrite.state import INPUTS, foreseen
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
from gearshift.sim.rewrite_profiles import RegionProfile
from gearshift.sim.rewrite_world import RewriteWorld

TEST_EPISODES = 40
"""So often each region is played."""
SCHOOLING = 20
"""As often those players are taught that learn as they go."""
SKEW = 0.1


@dataclass(frozen=True, slots=True, kw_only=True)
class Standing:
    share: float
    """Of the best reachable speed: the best entry's time over the chosen one's, geometric mean."""
    gained: float
    """Of the best reachable speed-up over what was in force at first, as logarithms, of all regions
    together: 0 for who changes nothing."""
    measurements: float
    """Of one region, mean;"""
    build_s: float
    """and what it took to build for them."""
    earned: float
    """By one region, mean."""


def divided(profiles: Sequence[RegionProfile]) -> tuple[list[RegionProfile], list[RegionProfile]]:
    """To train on, to test on: a model's regions are in one of them only."""
    return apart(profiles, lambda profile: profile.model)


def train(
    profiles: Sequence[RegionProfile],
    *,
    seed: int,
    steps: int,
    settings: Settings | None = None,
    weights: RewriteWeights | None = None,
    told: Told = untold,
    points: int = POINTS,
    episodes: int = TEST_EPISODES,
) -> Trained[Dqn]:
    """The best is who earns most, not who comes nearest to the oracle at whatever cost."""
    train_on, test_on = divided(profiles)
    settings = settings or Settings(discount=DISCOUNT, epsilon_steps=steps // 2)
    weights = weights or RewriteWeights()
    dqn = Dqn.fresh(len(INPUTS), len(ENTRIES), seed, settings, foreseen)
    player = Learned(dqn, learning=True)
    world = RewriteWorld(train_on, np.random.default_rng(seed + 1), weights, SKEW)

    def scores(frozen: Dqn) -> tuple[float, float]:
        mine = partial(score, Learned(frozen), episodes=episodes, weights=weights)
        known, unknown = mine(train_on, seed=seed + 2), mine(test_on, seed=seed + TEST_SEED)
        return known.earned, unknown.share

    return schooled(
        _lived(player, world),
        partial(copied, dqn),
        scores,
        steps=steps,
        points=points,
        told=told,
    )


def _lived(player: Player, world: RewriteWorld) -> Iterator[float]:
    """What each choice earns, episode after episode."""
    while True:
        yield from _episode(player, world)


def _episode(player: Player, world: RewriteWorld) -> Iterator[float]:
    view, end = world.reset(), False
    while not end:
        entry = player.choose(view)
        stepped = world.step(entry)
        player.learn(view, entry, stepped.reward.total, stepped.view, end=stepped.end)
        view, end = stepped.view, stepped.end
        yield stepped.reward.total


def score(
    player: Player,
    profiles: Sequence[RegionProfile],
    *,
    seed: int,
    episodes: int = TEST_EPISODES,
    weights: RewriteWeights | None = None,
) -> Standing:
    """Every region so often, by episodes that are the same for all players."""
    shares, spent, build_s, earned = [], [], [], []
    gained = reachable = 0.0
    for episode in range(episodes):
        for number, profile in enumerate(profiles):
            random = np.random.default_rng((seed, episode, number))
            world = RewriteWorld([profile], random, weights or RewriteWeights())
            earned.append(sum(_episode(player, world)))
            shares.append(world.oracle_s / world.took_s)
            first_s = profile.seconds[world.view.in_force]
            gained += log(first_s / world.took_s)
            reachable += log(first_s / world.oracle_s)
            spent.append(len(world.spent))
            build_s.append(sum(profile.build_s[entry] for entry in world.spent))
    return Standing(
        share=geometric_mean(shares),
        gained=gained / reachable if reachable > 0 else 1.0,
        measurements=fmean(spent),
        build_s=fmean(build_s),
        earned=fmean(earned),
    )


def standings(
    dqn: Dqn,
    profiles: Sequence[RegionProfile],
    *,
    seed: int,
    episodes: int = TEST_EPISODES,
    weights: RewriteWeights | None = None,
) -> dict[str, Standing]:
    """All players, best first, on models that nobody trained on. Who learns as it goes is taught on
    the others first, as the agent was."""
    train_on, test_on = divided(profiles)
    others = baselines(np.random.default_rng(seed))
    for player in others:
        score(player, train_on, seed=seed + 1, episodes=SCHOOLING)
    found = {
        player.name: score(player, test_on, seed=seed, episodes=episodes, weights=weights)
        for player in (*others, Learned(dqn))
    }
    return dict(sorted(found.items(), key=lambda entry: -entry[1].share))
