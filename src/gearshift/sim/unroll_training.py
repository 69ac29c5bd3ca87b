"""Trains the unroll agent in the simulator, and scores all players on architectures that nobody
trained on.

Must not know files or the command line.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from statistics import fmean, geometric_mean

import numpy as np

from gearshift.decide.learn.ppo import Actor, Learner, PpoSettings
from gearshift.decide.unroll.actions import CHOICES, STAY
from gearshift.decide.unroll.players import Fixed, Learned, Player, baselines
from gearshift.decide.unroll.reward import DISCOUNT, UnrollWeights
from gearshift.sim.learning import POINTS, TEST_SEED, Told, Trained, schooled, untold
from gearshift.sim.unroll_cases import Architecture, Episode, divided, draw_episode
from gearshift.sim.unroll_oracle import episode_oracle_s
from gearshift.sim.unroll_profiles import KernelProfile, Kernels
from gearshift.sim.unroll_world import UnrollWorld

TEST_EPISODES = 40
SCHOOLING = 4
"""Those players that learn as they go are taught on so many times as many episodes."""
START_SEED = 1 << 20
"""Of the traces by which is chosen what players begin with."""
PATIENCE = (0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0, 9.0)
"""By how much another setting must be likelier than to stay. Who learns to choose draws what it
does, and so changes its mind more often than it has reason to."""
Seed = tuple[int, int]


@dataclass(frozen=True, slots=True, kw_only=True)
class Trace:
    """An episode as it comes to every player."""

    episode: Episode
    seed: Seed
    """Of what is read in it."""
    oracle_s: float
    """What its calls would have taken by the best settings for each."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Played:
    took_s: float
    earned: float
    switches: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Score:
    share: float
    """The oracle's time over the player's, geometric mean."""
    switches: float
    """Of an episode, mean;"""
    earned: float
    """and by a call."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Standing:
    share: float
    """Of the oracle, as in the score."""
    vs_best_fixed: float
    """The time of the setting that was best where it was trained, and never changes, over its own,
    geometric mean."""
    switches: float
    earned: float


def train(
    profiles: Sequence[KernelProfile],
    *,
    seed: int,
    steps: int,
    settings: PpoSettings | None = None,
    weights: UnrollWeights | None = None,
    told: Told = untold,
    points: int = POINTS,
    episodes: int = TEST_EPISODES,
) -> Trained[Actor]:
    """Raises MissingExtraError. The best is who earns most on what it is trained on, as patient as
    is best there."""
    from gearshift.sim.unroll_env import UnrollEnv

    train_on, test_on = divided()
    weights = weights or UnrollWeights()
    settings = settings or PpoSettings(discount=DISCOUNT)
    settings = replace(settings, rollout=min(settings.rollout, max(1, steps // points)))
    start = best_fixed(Kernels.of(profiles), weights, episodes).start
    learner = Learner(lambda: UnrollEnv(profiles, train_on, weights, usual=start), settings, seed)
    drawn = partial(traces, kernels=Kernels.of(profiles), episodes=episodes)
    known = list(drawn(train_on, seed=seed + 2))
    unknown = list(drawn(test_on, seed=seed + TEST_SEED))

    def earned(actor: Actor) -> float:
        return score(Learned(actor, start=start), known, weights).earned

    def patient() -> Actor:
        actor = learner.actor()
        return max((actor.inclined(STAY, by) for by in PATIENCE), key=earned)

    def scores(actor: Actor) -> tuple[float, float]:
        return earned(actor), score(Learned(actor, start=start), unknown, weights).share

    return schooled(
        learner.lived(),
        patient,
        scores,
        steps=steps,
        points=points,
        told=told,
    )


def traces(
    architectures: Sequence[Architecture], kernels: Kernels, *, seed: int, episodes: int
) -> Iterator[Trace]:
    """One architecture after the other."""
    for number in range(episodes):
        episode = _drawn(architectures, kernels, (seed, number))
        yield Trace(episode=episode, seed=(seed, number), oracle_s=episode_oracle_s(episode))


def _drawn(architectures: Sequence[Architecture], kernels: Kernels, seed: Seed) -> Episode:
    architecture = architectures[seed[1] % len(architectures)]
    return draw_episode([architecture], kernels, np.random.default_rng(seed))


def score(player: Player, on: Sequence[Trace], weights: UnrollWeights | None = None) -> Score:
    shares, switches, earned = [], [], []
    for trace in on:
        played = _played(player, trace.episode, trace.seed, weights or UnrollWeights())
        shares.append(trace.oracle_s / played.took_s)
        switches.append(played.switches)
        earned.append(played.earned)
    return Score(share=geometric_mean(shares), switches=fmean(switches), earned=fmean(earned))


def _played(player: Player, episode: Episode, seed: Seed, weights: UnrollWeights) -> Played:
    world = UnrollWorld(np.random.default_rng(seed), weights)
    view, end = world.begin(episode, player.start), False
    took_s, earned = [], []
    while not end:
        action = player.choose(view)
        stepped = world.step(action)
        player.learn(view, action, stepped.reward.total, stepped.view)
        view, end = stepped.view, stepped.end
        took_s.append(stepped.took_s)
        earned.append(stepped.reward.total)
    return Played(took_s=sum(took_s), earned=fmean(earned), switches=world.num_switches)


def standings(
    actor: Actor,
    profiles: Sequence[KernelProfile],
    *,
    seed: int,
    episodes: int = TEST_EPISODES,
    weights: UnrollWeights | None = None,
) -> dict[str, Standing]:
    """All players, best first, on architectures that nobody trained on. Who learns as it goes is
    taught on the others first, as the agent was; and who changes settings begins with the fixed one
    that was best there."""
    (train_on, test_on), kernels = divided(), Kernels.of(profiles)
    weights = weights or UnrollWeights()
    others = baselines(np.random.default_rng(seed))
    for number in range(SCHOOLING * episodes):
        lesson = (seed + 1, number)
        episode = _drawn(train_on, kernels, lesson)
        for player in others:
            if player.start is None:
                _played(player, episode, lesson, weights)
    best = best_fixed(kernels, weights, episodes)
    players: list[Player] = [*others, Learned(actor)]
    for player in players:
        player.start = player.start or best.start
    on = list(traces(test_on, kernels, seed=seed, episodes=episodes))
    found = {player.name: score(player, on, weights) for player in players}
    fixed = found[best.name].share
    ordered = sorted(found.items(), key=lambda entry: -entry[1].share)
    return {name: _standing(row, fixed) for name, row in ordered}


def best_fixed(kernels: Kernels, weights: UnrollWeights, episodes: int) -> Fixed:
    """Of those that never change, on what is trained on."""
    known = list(traces(divided()[0], kernels, seed=START_SEED, episodes=episodes))
    return max(map(Fixed, CHOICES), key=lambda player: score(player, known, weights).share)


def _standing(row: Score, fixed: float) -> Standing:
    """Both are shares of the same oracle."""
    return Standing(
        share=row.share,
        vs_best_fixed=row.share / fixed,
        switches=row.switches,
        earned=row.earned,
    )
