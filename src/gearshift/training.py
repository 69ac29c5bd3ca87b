"""Trains agents and tells how they stand: weights, a picture, a table, all in one folder.

A recipe: joins the simulator, the recorder and the files. Decides nothing.
"""

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from gearshift.console import counting, note, say, working
from gearshift.decide.policy import DQN
from gearshift.decide.split.agent import write_agent
from gearshift.decide.split.players import ALWAYS
from gearshift.errors import UsageError
from gearshift.plan.objective import SplitWeights
from gearshift.sim.profiles import SHIPPED, Profile, read_profiles, write_profiles
from gearshift.sim.split_training import POINTS, Point, divided, standings, train
from gearshift.tell import machine, write
from gearshift.view.curve import curve_picture

TEST_SEED = 1000
"""The traces that players are compared on are none of those the agent was trained on."""
STEPS_A_POINT = 500
AGENT, CURVE, STANDINGS = "agent.safetensors", "curve.svg", "standings.json"
PROFILES = "profiles.json"


@dataclass(frozen=True, slots=True, kw_only=True)
class Training:
    seed: int
    steps: int
    out: Path
    """The folder that everything is written to."""
    profiles: Path | None
    """Regions recorded before; None: those shipped,"""
    record: bool
    """or, with this, such as are measured now."""
    weights: SplitWeights
    episodes: int
    """How many the agent and the other players are compared on."""


def train_split(training: Training) -> dict[str, Any]:
    seed, steps, out = training.seed, training.steps, training.out
    found = [] if training.record else read_profiles(training.profiles or SHIPPED)
    _make(out)
    if training.record:
        found = _recorded(out / PROFILES)
    train_on, test_on = divided(found)
    if not train_on or not test_on:
        raise UsageError(f"{len(found)} profiles are too few to train on some and test on others")
    points = max(1, min(POINTS, steps // STEPS_A_POINT))
    with counting(points) as step:

        def told(point: Point) -> None:
            step(f"step {point.step}: {point.of_oracle:.3f} of the oracle")

        trained = train(
            found,
            seed=seed,
            steps=steps,
            weights=training.weights,
            told=told,
            points=points,
            episodes=training.episodes,
        )
    with working("all players on regions nobody trained on"):
        stand = standings(trained.dqn, found, seed=seed + TEST_SEED, episodes=training.episodes)
    about = {
        "seed": seed,
        "steps": steps,
        "weights": asdict(training.weights),
        "machine": "simulated",
    }
    write_agent(out / AGENT, trained.dqn, about)
    line = [(point.step, point.of_oracle) for point in trained.curve]
    write(out / CURVE, _picture(line, stand, seed))
    result = {
        **about,
        "trained_on": len(train_on),
        "tested_on": sorted({profile.name for profile in test_on}),
        "curve": [asdict(point) for point in trained.curve],
        "standings": stand,
    }
    write(out / STANDINGS, json.dumps(result, indent=1) + "\n")
    for name in (AGENT, CURVE, STANDINGS):
        note(f"wrote {out / name}")
    return result


def _make(folder: Path) -> None:
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UsageError(f"cannot make the folder {str(folder)!r}: {error.strerror}") from None


def _recorded(path: Path) -> list[Profile]:
    from gearshift.bench.profiles import record

    found: list[Profile] = []
    for profile in record(say):
        found.append(profile)
        write_profiles(path, found, machine())  # what was measured so far is not lost
    note(f"wrote {path}")
    return found


def _picture(points: Sequence[tuple[int, float]], stand: dict[str, float], seed: int) -> str:
    """Beside those that look, and the best of those that do not."""
    fixed = next(name for name in stand if name.startswith(ALWAYS))
    looking = [name for name in stand if name != DQN and not name.startswith(ALWAYS)]
    others = {name: stand[name] for name in (*looking, fixed)}
    title = f"the split agent, seed {seed}: share of the oracle on regions it was not trained on"
    return curve_picture(points, others, title=title)
