"""`gearshift bench regions`: what it costs to become fast, how fast it gets, and what disturbs.

Beside peers that are fixed for the whole run and pay for their own export and compilation, their
first call counted. Gearshift lives until it has settled; then all take turns, in slices of the same
length. A case that fails tells why and leaves the others their time.
"""

import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from gearshift.bench.arena import Setting
from gearshift.bench.contender import BUILD, OTHER_SIZES, REST
from gearshift.bench.models import MODELS, SIZES, SQUASHED
from gearshift.bench.regions_score import (
    UNFORMED,
    Life,
    builds_of,
    case_of,
    over_all,
    shapes_of,
)
from gearshift.bench.score import OURS, PEERS, TWICE, slices_of
from gearshift.bench.stage import Answers, LifePace, Say, Stage, Turns, in_turns, lived, stage_of
from gearshift.errors import GearshiftError
from gearshift.zoo import ZOO

STATIC = {
    **{name: Setting(kind=name, warm_up=0, cold=True) for name in PEERS},
    TWICE: Setting(kind="onnxruntime", warm_up=0, cold=True),
}
PEERS_BUT_EAGER = tuple(name for name in STATIC if name != "eager")
"""One of these that cannot run a model is left out."""
GEARSHIFT = Setting(kind=OURS, warm_up=0, cold=True)
LIFE = LifePace(seconds=90.0, longer=6, longer_s=10.0)
"""Regions are looked into only after half a minute of calls."""
TURNS = Turns(rounds=10, far=1.5)
BEFORE, AFTER = 0, 1
"""The two sizes of inputs."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Pace:
    life: LifePace = LIFE
    turns: Turns = TURNS
    least_call_s: float = 2e-3
    """A model that takes less is no case: it is calls that would be measured."""
    unformed_s: float = 10.0
    """How long Gearshift without regions formed anew lives, where there were some."""
    models: tuple[str, ...] = (*ZOO, *MODELS, SQUASHED)
    shapes: tuple[str, ...] = tuple(SIZES)
    before_s: float = 10.0
    """How long inputs are of the first size,"""
    shape_rounds: int = 10
    """and slices of each contender when they are of the second."""
    building: tuple[str, ...] = ("minilm", "resnet18")
    build_s: float = 2.0
    """A slice beside builds, or without."""


QUICK = Pace(
    life=LifePace(seconds=50.0, longer=1),
    turns=Turns(slice_s=0.5, rounds=4),
    models=("mlp", SQUASHED),
    shapes=("minilm",),
    before_s=5.0,
    shape_rounds=6,
    building=("minilm",),
    build_s=1.0,
)


def measure(models: Sequence[str] | None, *, pace: Pace, say: Say) -> dict[str, Any]:
    """Of `models`, if they are given, only what concerns them."""

    def concerned(some: Sequence[str]) -> list[str]:
        return [model for model in some if not models or model in models]

    cases = [_tried(_case, model, pace, say) for model in models or pace.models]
    shapes = [_tried(_shapes, model, pace, say) for model in concerned(pace.shapes)]
    builds = [_tried(_builds, model, pace, say) for model in concerned(pace.building)]
    return {**over_all(cases), "cases": cases, "shapes": shapes, "builds": builds}


def _tried(
    measured: Callable[[Stage, Pace], dict[str, Any]], model: str, pace: Pace, say: Say
) -> dict[str, Any]:
    about = {"model": model, "trace": "quiet"}
    try:
        with stage_of(model, say) as stage:
            told = measured(stage, pace)
            return {"case": {**about, "batch": stage.batch}, **told}
    except (GearshiftError, OSError, ValueError) as error:
        say(f"{model} failed: {error}")
        return {"case": about, "failed": f"{type(error).__name__}: {error}"}


def _case(stage: Stage, pace: Pace) -> dict[str, Any]:
    stage.export()
    contenders = stage.open({**STATIC, OURS: GEARSHIFT}, may_fail=PEERS_BUT_EAGER)
    first: dict[str, Answers] = {}
    for name in [name for name in contenders if name != OURS]:
        stage.say(f"{stage.model}: the first calls of {name}")
        first[name] = [contenders[name].run(pace.turns.slice_s)]
    _refuse_short(first["eager"], pace)
    stage.say(f"{stage.model}: gearshift lives")
    first[OURS] = lived(contenders[OURS], pace.life)
    if first[OURS][-1]["formed"]:
        unformed = {UNFORMED: replace(GEARSHIFT, kind=UNFORMED)}
        for name, contender in stage.open(unformed, may_fail={UNFORMED}).items():
            contenders[name], first[name] = contender, [contender.run(pace.unformed_s)]
    warm = in_turns(stage, contenders, pace.turns)
    lives = {
        name: Life(
            ready_s=stage.paid_s(name),
            first_s=slices_of(first[name]).calls(),
            warm=slices_of(warm[name]),
        )
        for name in contenders
    }
    return {**case_of(lives), **_told(first[OURS], warm[OURS]), "peers_failed": stage.failed}


def _refuse_short(answers: Answers, pace: Pace) -> None:
    if statistics.median(slices_of(answers).calls()) < pace.least_call_s:
        raise GearshiftError(f"takes less than {pace.least_call_s * 1e3:g} ms a call")


def _told(first: Answers, warm: Answers) -> dict[str, Any]:
    """What Gearshift itself tells."""
    ours, last = [*first, *warm], warm[-1]
    return {
        "max_error": max(answer["max_error"] for answer in ours),
        "restless": sum(answer["under_way"] for answer in warm),
        "plan": last["plans"][-1],
        "formed": last["formed"],
        "decisions": last["decisions"],
    }


def _shapes(stage: Stage, pace: Pace) -> dict[str, Any]:
    """Inputs become of another size while Gearshift serves; peers are made for that size."""
    stage.export(AFTER)
    ours = {OURS: replace(GEARSHIFT, sizes=BEFORE)}
    peers = {name: Setting(kind=name, sizes=AFTER) for name in PEERS}
    contenders = stage.open({**ours, **peers}, may_fail=PEERS_BUT_EAGER)
    contenders[OURS].run(pace.before_s)
    contenders[OURS].become(OTHER_SIZES)
    answers = in_turns(stage, contenders, replace(pace.turns, rounds=pace.shape_rounds))
    slices = {name: slices_of(mine) for name, mine in answers.items()}
    return shapes_of(slices.pop(OURS), slices)


def _builds(stage: Stage, pace: Pace) -> dict[str, Any]:
    """Slices with builds in the background and without, in turns."""
    contender = stage.open({BUILD: Setting(kind="building")})[BUILD]
    answers: dict[str, Answers] = {BUILD: [], REST: []}
    for turn in range(pace.turns.rounds):
        stage.say(f"{stage.model}: builds in the background, round {turn + 1}")
        for word in sorted(answers, reverse=turn % 2 == 1):
            contender.become(word)
            answers[word].append(contender.run(pace.build_s))
    return builds_of(answers[BUILD], answers[REST])
