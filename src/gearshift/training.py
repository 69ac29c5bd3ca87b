"""Trains agents and tells how they stand: weights, a picture, a table, all in one folder.

A recipe: joins the simulator, the recorder and the files. Decides nothing.
"""

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

from gearshift.console import counting, note, say, working
from gearshift.decide.learn.agent import Role
from gearshift.decide.policy import DQN
from gearshift.decide.rewrite.agent import ROLE as REWRITE
from gearshift.decide.rewrite.reward import RewriteWeights
from gearshift.decide.split.agent import ROLE as SPLIT
from gearshift.decide.split.players import ALWAYS
from gearshift.errors import UsageError
from gearshift.plan.objective import SplitWeights
from gearshift.sim import profiles, rewrite_profiles, rewrite_training, split_training
from gearshift.sim.learning import POINTS, Point, Trained
from gearshift.sim.profiles import Profile, read_profiles, write_profiles
from gearshift.sim.rewrite_profiles import RegionProfile, read_regions
from gearshift.tell import machine, write
from gearshift.view.curve import curve_picture

P = TypeVar("P")
W = TypeVar("W", SplitWeights, RewriteWeights)
TEST_SEED = 1000
"""The traces that players are compared on are none of those the agent was trained on."""
STEPS_A_POINT = 500
AGENT, CURVE, STANDINGS = "agent.safetensors", "curve.svg", "standings.json"
PROFILES = "profiles.json"


@dataclass(frozen=True, slots=True, kw_only=True)
class Training:
    knob: str
    """What the agent decides."""
    seed: int
    steps: int
    out: Path
    """The folder that everything is written to."""
    profiles: Path | None
    """Regions recorded before; None: those shipped,"""
    record: bool
    """or, with this, such as are measured now."""
    weights: Mapping[str, float]
    """Of the reward's parts, where they are not to be the usual ones."""
    episodes: int
    """How many the agent and the other players are compared on."""


def train_agent(training: Training) -> dict[str, Any]:
    train = {SPLIT.knob: train_split, REWRITE.knob: train_rewrite}[training.knob]
    return train(training)


def train_split(training: Training) -> dict[str, Any]:
    weights = _weights(training, SplitWeights)
    found = _regions(training, read_profiles, profiles.SHIPPED, _split_recorded)
    train_on, test_on = split_training.divided(found)
    _refuse_too_few(train_on, test_on)
    trained = _trained(training, partial(split_training.train, found, weights=weights))
    with working("all players on regions nobody trained on"):
        stand = split_training.standings(
            trained.dqn, found, seed=training.seed + TEST_SEED, episodes=training.episodes
        )
    told = _told(training, asdict(weights), train_on, {profile.name for profile in test_on})
    return _written(training, SPLIT, trained, told, stand, stand)


def train_rewrite(training: Training) -> dict[str, Any]:
    weights = _weights(training, RewriteWeights)
    found = _regions(training, read_regions, rewrite_profiles.SHIPPED, _rewrite_recorded)
    train_on, test_on = rewrite_training.divided(found)
    _refuse_too_few(train_on, test_on)
    trained = _trained(training, partial(rewrite_training.train, found, weights=weights))
    with working("all players on models nobody trained on"):
        stand = rewrite_training.standings(
            trained.dqn,
            found,
            seed=training.seed + TEST_SEED,
            episodes=training.episodes,
            weights=weights,
        )
    told = _told(training, asdict(weights), train_on, {profile.model for profile in test_on})
    shares = {name: standing.share for name, standing in stand.items()}
    plain = {name: asdict(standing) for name, standing in stand.items()}
    return _written(training, REWRITE, trained, told, plain, shares)


def _weights(training: Training, kind: type[W]) -> W:
    known = {field.name for field in fields(kind)}
    unknown = [name for name in training.weights if name not in known]
    if unknown:
        raise UsageError(f"--{unknown[0]} is no part of what a {training.knob} earns")
    return kind(**training.weights)


def _regions(
    training: Training,
    read: Callable[[Path], list[P]],
    shipped: Path,
    record: Callable[[], Iterator[P]],
) -> list[P]:
    found = [] if training.record else read(training.profiles or shipped)
    _make(training.out)
    return _recorded(training.out / PROFILES, record()) if training.record else found


def _make(folder: Path) -> None:
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UsageError(f"cannot make the folder {str(folder)!r}: {error.strerror}") from None


def _recorded(path: Path, measured: Iterator[P]) -> list[P]:
    found: list[P] = []
    for profile in measured:
        found.append(profile)
        write_profiles(path, found, machine())  # what was measured so far is not lost
    note(f"wrote {path}")
    return found


def _split_recorded() -> Iterator[Profile]:
    from gearshift.bench.profiles import record

    return record(say)


def _rewrite_recorded() -> Iterator[RegionProfile]:
    from gearshift.bench.rewrite_profiles import record

    return record(say)


def _refuse_too_few(train_on: Sequence[object], test_on: Sequence[object]) -> None:
    if not train_on or not test_on:
        count = len(train_on) + len(test_on)
        raise UsageError(f"{count} profiles are too few to train on some and test on others")


def _trained(training: Training, train: Callable[..., Trained]) -> Trained:
    points = max(1, min(POINTS, training.steps // STEPS_A_POINT))
    with counting(points) as step:

        def told(point: Point) -> None:
            step(f"step {point.step}: {point.of_oracle:.3f} of the oracle")

        return train(
            seed=training.seed,
            steps=training.steps,
            told=told,
            points=points,
            episodes=training.episodes,
        )


def _told(
    training: Training, weights: dict[str, float], train_on: Sequence[object], test_on: set[str]
) -> dict[str, Any]:
    """Of an agent: first what is written beside its weights, then the rest."""
    return {
        "seed": training.seed,
        "steps": training.steps,
        "weights": weights,
        "machine": "simulated",
        "trained_on": len(train_on),
        "tested_on": sorted(test_on),
    }


def _written(
    training: Training,
    role: Role,
    trained: Trained,
    told: dict[str, Any],
    stand: Mapping[str, Any],
    shares: Mapping[str, float],
) -> dict[str, Any]:
    """All of it, as files in the folder; `shares` are those of the oracle, best first."""
    out = training.out
    about = {name: told[name] for name in ("seed", "steps", "weights", "machine")}
    role.write(out / AGENT, trained.dqn, about)
    line = [(point.step, point.of_oracle) for point in trained.curve]
    write(out / CURVE, _picture(line, shares, training))
    result = {
        **told,
        "curve": [asdict(point) for point in trained.curve],
        "standings": dict(stand),
    }
    write(out / STANDINGS, json.dumps(result, indent=1) + "\n")
    for name in (AGENT, CURVE, STANDINGS):
        note(f"wrote {out / name}")
    return result


def _picture(
    points: Sequence[tuple[int, float]], shares: Mapping[str, float], training: Training
) -> str:
    """Beside those that look, and the best of those that do not."""
    fixed = next(name for name in shares if name.startswith(ALWAYS))
    looking = [name for name in shares if name != DQN and not name.startswith(ALWAYS)]
    others = {name: shares[name] for name in (*looking, fixed)}
    title = (
        f"the {training.knob} agent, seed {training.seed}: share of the oracle on regions it was"
        " not trained on"
    )
    return curve_picture(points, others, title=title)
