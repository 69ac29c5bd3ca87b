"""Trains agents and tells how they stand: weights, a picture, a table, all in one folder.

A recipe: joins the simulator, the recorder and the files. Decides nothing.
"""

import json
import shlex
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from functools import partial
from pathlib import Path
from tempfile import TemporaryFile
from typing import Any, TypeVar

from gearshift import settings
from gearshift.console import counting, note, say, working
from gearshift.decide.learn.agent import SIMULATED, Role
from gearshift.decide.learn.dqn import Dqn
from gearshift.decide.learn.ppo import Actor
from gearshift.decide.policy import DQN, PPO
from gearshift.decide.rewrite.agent import ROLE as REWRITE
from gearshift.decide.rewrite.reward import RewriteWeights
from gearshift.decide.split.agent import ROLE as SPLIT
from gearshift.decide.split.players import ALWAYS
from gearshift.decide.unroll.agent import ROLE as UNROLL
from gearshift.decide.unroll.reward import UnrollWeights
from gearshift.errors import UsageError
from gearshift.plan.objective import SplitWeights
from gearshift.sim import (
    profiles,
    rewrite_library,
    rewrite_profiles,
    rewrite_training,
    split_training,
    unroll_cases,
    unroll_profiles,
    unroll_training,
)
from gearshift.sim.learning import POINTS, TEST_SEED, Point, Trained
from gearshift.sim.profiles import Profile, about_profiles, read_profiles, write_profiles
from gearshift.sim.rewrite_profiles import RegionProfile, read_regions
from gearshift.sim.unroll_profiles import KernelProfile, read_kernels
from gearshift.tell import machine, today, write
from gearshift.view.curve import curve_picture

P = TypeVar("P")
A = TypeVar("A", Dqn, Actor)
Standing = rewrite_training.Standing | unroll_training.Standing
W = TypeVar("W", SplitWeights, RewriteWeights, UnrollWeights)
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
    install: bool = False
    """Whether models that serve from now on start with this agent."""

    @property
    def command(self) -> str:
        """What makes the same again, wherever it is put."""
        words = ["gearshift", "train", self.knob, "--seed", str(self.seed)]
        words += ["--steps", str(self.steps), "--episodes", str(self.episodes)]
        words += ["--record"] if self.record else []
        words += ["--profiles", str(self.profiles)] if self.profiles is not None else []
        for name, weight in self.weights.items():
            words += [f"--{name}", str(weight)]
        return shlex.join(words)


def train_agent(training: Training) -> dict[str, Any]:
    recipes = {
        SPLIT.knob: train_split,
        REWRITE.knob: train_rewrite,
        UNROLL.knob: train_unroll,
    }
    return recipes[training.knob](training)


def train_split(training: Training) -> dict[str, Any]:
    weights = _weights(training, SplitWeights)
    found = _regions(training, SPLIT, read_profiles, profiles.SHIPPED, _split_recorded)
    train_on, test_on = split_training.divided(found)
    _refuse_too_few(train_on, test_on)
    told = _told(training, asdict(weights), train_on, {p.name for p in test_on}, profiles.SHIPPED)
    trained = _trained(training, partial(split_training.train, found, weights=weights))
    with working("all players on regions nobody trained on"):
        stand = split_training.standings(
            trained.agent,
            found,
            seed=training.seed + TEST_SEED,
            steps=training.steps,
            episodes=training.episodes,
        )
    return _written(training, SPLIT, trained, told, stand, stand)


def train_rewrite(training: Training) -> dict[str, Any]:
    weights = _weights(training, RewriteWeights)
    found = _regions(training, REWRITE, read_regions, rewrite_profiles.SHIPPED, _rewrite_recorded)
    train_on, test_on = rewrite_training.divided(found)
    _refuse_too_few(train_on, test_on)
    tested_on, shipped = {profile.model for profile in test_on}, rewrite_profiles.SHIPPED
    told = _told(training, asdict(weights), train_on, tested_on, shipped)
    trained = _trained(training, partial(rewrite_training.train, found, weights=weights))
    with working("all players on models nobody trained on"):
        stand = rewrite_training.standings(
            trained.agent,
            found,
            seed=training.seed + TEST_SEED,
            episodes=training.episodes,
            weights=weights,
        )
    library = {name: asdict(entry) for name, entry in rewrite_library.won(found).items()}
    told |= {"library": library, "library_noise": rewrite_library.noise_of(found)}
    return _written(training, REWRITE, trained, told, _plain(stand), _shares(stand))


def train_unroll(training: Training) -> dict[str, Any]:
    weights = _weights(training, UnrollWeights)
    found = _regions(training, UNROLL, read_kernels, unroll_profiles.SHIPPED, _unroll_recorded)
    train_on, test_on = unroll_cases.divided()
    tested_on, shipped = set(map(str, test_on)), unroll_profiles.SHIPPED
    told = _told(training, asdict(weights), train_on, tested_on, shipped)
    trained = _trained(training, partial(unroll_training.train, found, weights=weights))
    with working("all players on architectures nobody trained on"):
        stand = unroll_training.standings(
            trained.agent,
            found,
            seed=training.seed + TEST_SEED,
            episodes=training.episodes,
            weights=weights,
        )
    return _written(training, UNROLL, trained, told, _plain(stand), _shares(stand))


def _plain(stand: Mapping[str, Standing]) -> dict[str, Any]:
    return {name: asdict(standing) for name, standing in stand.items()}


def _shares(stand: Mapping[str, Standing]) -> dict[str, float]:
    """Of the oracle."""
    return {name: standing.share for name, standing in stand.items()}


def _weights(training: Training, kind: type[W]) -> W:
    known = {field.name for field in fields(kind)}
    unknown = [name for name in training.weights if name not in known]
    if unknown:
        raise UsageError(f"--{unknown[0]} is no part of what the {training.knob} agent earns")
    return kind(**training.weights)


def _regions(
    training: Training,
    role: Role,
    read: Callable[[Path], list[P]],
    shipped: Path,
    record: Callable[[], Iterator[P]],
) -> list[P]:
    found = [] if training.record else read(training.profiles or shipped)
    _make(training.out)
    if training.install:
        _make(_installed(role).parent)
    return _recorded(training.out / PROFILES, record()) if training.record else found


def _make(folder: Path) -> None:
    """Whether it can be written to shows before the training, not after it."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with TemporaryFile(dir=folder):
            pass
    except OSError as error:
        raise UsageError(f"cannot write to the folder {str(folder)!r}: {error.strerror}") from None


def _installed(role: Role) -> Path:
    return role.own_file(settings.home())


def _recorded(path: Path, measured: Iterator[P]) -> list[P]:
    found: list[P] = []
    about = {**machine(), "date": today()}
    for profile in measured:
        found.append(profile)
        write_profiles(path, found, about)  # what was measured so far is not lost
    note(f"wrote {path}")
    return found


def _split_recorded() -> Iterator[Profile]:
    from gearshift.bench.profiles import record

    return record(say)


def _rewrite_recorded() -> Iterator[RegionProfile]:
    from gearshift.bench.rewrite_profiles import record

    return record(say)


def _unroll_recorded() -> Iterator[KernelProfile]:
    from gearshift.bench.unroll_profiles import record

    return record(say)


def _refuse_too_few(train_on: Sequence[object], test_on: Sequence[object]) -> None:
    if not train_on or not test_on:
        count = len(train_on) + len(test_on)
        raise UsageError(f"{count} profiles are too few to train on some and test on others")


def _trained(training: Training, train: Callable[..., Trained[A]]) -> Trained[A]:
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
    training: Training,
    weights: dict[str, float],
    train_on: Sequence[object],
    test_on: set[str],
    shipped: Path,
) -> dict[str, Any]:
    """Of an agent: first what is written beside its weights, then the rest."""
    recorded = training.out / PROFILES if training.record else training.profiles or shipped
    return {
        "seed": training.seed,
        "steps": training.steps,
        "weights": weights,
        "machine": SIMULATED,
        "version": machine()["versions"]["gearshift"],
        "command": training.command,
        "recorded_on": about_profiles(recorded),
        "trained_on": len(train_on),
        "tested_on": sorted(test_on),
    }


def _written(
    training: Training,
    role: Role,
    trained: Trained[A],
    told: dict[str, Any],
    stand: Mapping[str, Any],
    shares: Mapping[str, float],
) -> dict[str, Any]:
    """All of it, as files in the folder; `shares` are those of the oracle, best first."""
    out = training.out
    about = {name: told[name] for name in ("seed", "steps", "weights", "machine")}
    agents: list[Path] = [out / AGENT, _installed(role)] if training.install else [out / AGENT]
    for path in agents:
        role.write(path, trained.agent, about)
    write(out / CURVE, _picture(trained, shares, training))
    result = {
        **told,
        "kept_at_step": trained.kept.step,
        "curve": [asdict(point) for point in trained.curve],
        "standings": dict(stand),
    }
    write(out / STANDINGS, json.dumps(result, indent=1) + "\n")
    for path in (*agents, out / CURVE, out / STANDINGS):
        note(f"wrote {path}")
    return result


def _picture(trained: Trained[A], shares: Mapping[str, float], training: Training) -> str:
    """Beside those that look, and the best of those that do not."""
    fixed = next(name for name in shares if name.startswith(ALWAYS))
    looking: list[str] = [
        name for name in shares if name not in (DQN, PPO) and not name.startswith(ALWAYS)
    ]
    others = {name: shares[name] for name in (*looking, fixed)}
    title = (
        f"the {training.knob} agent, seed {training.seed}: share of the oracle on what it was"
        " not trained on"
    )
    points = [(point.step, point.of_oracle) for point in trained.curve]
    kept = (trained.kept.step, trained.kept.of_oracle)
    return curve_picture(points, others, kept=kept, title=title)
