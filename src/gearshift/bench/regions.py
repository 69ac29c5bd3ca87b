"""`gearshift bench regions`: what it costs to become fast, how fast it gets, and what disturbs.

Beside peers that are fixed for the whole run and pay for their own export and compilation, their
first call counted. Gearshift lives until it has settled; then all take turns, in slices of the same
length. A case that fails tells why and leaves the others their time.
"""

import statistics
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from gearshift.bench.arena import Contender, Setting
from gearshift.bench.contender import BUILD, OTHER_SIZES, REST
from gearshift.bench.models import MODELS, SIZES, SQUASHED
from gearshift.bench.regions_score import (
    OURS,
    Life,
    builds_of,
    case_of,
    over_all,
    shapes_of,
    slices_of,
)
from gearshift.bench.score import PEERS, TWICE
from gearshift.errors import GearshiftError
from gearshift.zoo import ZOO

Say = Callable[[str], None]
Answers = list[dict[str, Any]]
EXPORT = "export"
NEEDS_EXPORT = ("onnxruntime", "openvino", TWICE)
RE_CUT = ("divided", "merged")
"""What decisions say of regions formed anew."""
STATIC = {
    **{name: Setting(kind=name, warm_up=0, cold=True) for name in PEERS},
    TWICE: Setting(kind="onnxruntime", warm_up=0, cold=True),
}
GEARSHIFT = Setting(kind=OURS, warm_up=0, cold=True)
BEFORE, AFTER = 0, 1
"""The two sizes of inputs."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Pace:
    life_s: float = 60.0
    """Of Gearshift, before it takes turns with the others;"""
    longer: int = 3
    """then so many times a bit longer, as long as something is under way."""
    longer_s: float = 5.0
    slice_s: float = 1.0
    rounds: int = 6
    """Slices of each contender, if that is enough for"""
    min_calls: int = 30
    """so many calls of each."""
    least_call_s: float = 2e-3
    """A model that takes less is no case: it is calls that would be measured."""
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
    life_s=40.0,
    longer=1,
    slice_s=0.5,
    rounds=4,
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
    measured: Callable[["_Stage", Pace], dict[str, Any]], model: str, pace: Pace, say: Say
) -> dict[str, Any]:
    about = {"model": model, "trace": "quiet"}
    try:
        with _stage(model, say) as stage:
            told = measured(stage, pace)
            return {"case": {**about, "batch": stage.batch}, **told}
    except (GearshiftError, OSError, ValueError) as error:
        say(f"{model} failed: {error}")
        return {"case": about, "failed": f"{type(error).__name__}: {error}"}


@dataclass(slots=True, kw_only=True)
class _Stage:
    """One model, and its contenders, each in a process of its own."""

    model: str
    folder: Path
    stack: ExitStack
    say: Say
    batch: int | None = None
    ready_s: dict[str, float] = field(default_factory=dict)

    def open(self, settings: Mapping[str, Setting]) -> dict[str, Contender]:
        """They load their libraries side by side, and get ready one after the other."""
        made = {name: self._make(setting) for name, setting in settings.items()}
        for contender in made.values():
            contender.arrive()
        for name, contender in made.items():
            self.say(f"{self.model}: {name} gets ready")
            contender.open()
            self.ready_s[name], self.batch = contender.ready_s, contender.batch
        return made

    def _make(self, setting: Setting) -> Contender:
        contender = Contender(self.model, setting, self.folder)
        self.stack.callback(contender.close)
        return contender

    def export(self, sizes: int | None = None) -> None:
        """For those who run ONNX."""
        setting = Setting(kind=EXPORT, warm_up=0, sizes=sizes)
        self.open({EXPORT: setting})[EXPORT].close()

    def paid_s(self, name: str) -> float:
        """Until it could be called, its export included."""
        return self.ready_s[name] + (self.ready_s[EXPORT] if name in NEEDS_EXPORT else 0.0)


@contextmanager
def _stage(model: str, say: Say) -> Iterator[_Stage]:
    with ExitStack() as stack:
        folder = tempfile.TemporaryDirectory(prefix="gearshift-", ignore_cleanup_errors=True)
        path = Path(stack.enter_context(folder))
        yield _Stage(model=model, folder=path, stack=stack, say=say)


def _case(stage: _Stage, pace: Pace) -> dict[str, Any]:
    stage.export()
    contenders = stage.open({**STATIC, OURS: GEARSHIFT})
    first: dict[str, Answers] = {}
    for name in STATIC:
        stage.say(f"{stage.model}: the first calls of {name}")
        first[name] = [contenders[name].run(pace.slice_s)]
    _refuse_short(first["eager"], pace)
    stage.say(f"{stage.model}: gearshift lives")
    first[OURS] = _lived(contenders[OURS], pace)
    warm = _in_turns(stage, contenders, pace)
    lives = {
        name: Life(
            ready_s=stage.paid_s(name),
            first_s=slices_of(first[name]).calls(),
            warm=slices_of(warm[name]),
        )
        for name in contenders
    }
    return {**case_of(lives), **_told(first[OURS], warm[OURS])}


def _refuse_short(answers: Answers, pace: Pace) -> None:
    if statistics.median(slices_of(answers).calls()) < pace.least_call_s:
        raise GearshiftError(f"takes less than {pace.least_call_s * 1e3:g} ms a call")


def _lived(gearshift: Contender, pace: Pace) -> Answers:
    """Until nothing is under way, or for long enough."""
    answers = [gearshift.run(pace.life_s)]
    while answers[-1]["under_way"] and len(answers) <= pace.longer:
        answers.append(gearshift.run(pace.longer_s))
    return answers


def _in_turns(stage: _Stage, contenders: Mapping[str, Contender], pace: Pace) -> dict[str, Answers]:
    """Slices of each, as many odd ones as even ones, in rotating order."""
    names, turn = list(contenders), 0
    answers: dict[str, Answers] = {name: [] for name in names}
    while turn < pace.rounds or turn % 2 or _fewest(answers) < pace.min_calls:
        stage.say(f"{stage.model}: all in turns, round {turn + 1}")
        place = turn % len(names)
        for name in names[place:] + names[:place]:
            answers[name].append(contenders[name].run(pace.slice_s))
        turn += 1
    return answers


def _fewest(answers: Mapping[str, Answers]) -> int:
    return min(sum(len(answer["call_s"]) for answer in mine) for mine in answers.values())


def _told(first: Answers, warm: Answers) -> dict[str, Any]:
    """What Gearshift itself tells."""
    ours, last = [*first, *warm], warm[-1]
    return {
        "max_error": max(answer["max_error"] for answer in ours),
        "restless": sum(answer["under_way"] for answer in warm),
        "plan": last["plans"][-1],
        "formed": [told for told in last["decisions"] if any(word in told for word in RE_CUT)],
        "decisions": last["decisions"],
    }


def _shapes(stage: _Stage, pace: Pace) -> dict[str, Any]:
    """Inputs become of another size while Gearshift serves; peers are made for that size."""
    stage.export(AFTER)
    ours = {OURS: replace(GEARSHIFT, sizes=BEFORE)}
    peers = {name: Setting(kind=name, sizes=AFTER) for name in PEERS}
    contenders = stage.open({**ours, **peers})
    contenders[OURS].run(pace.before_s)
    contenders[OURS].become(OTHER_SIZES)
    answers = _in_turns(stage, contenders, replace(pace, rounds=pace.shape_rounds))
    slices = {name: slices_of(mine) for name, mine in answers.items()}
    return shapes_of(slices.pop(OURS), slices)


def _builds(stage: _Stage, pace: Pace) -> dict[str, Any]:
    """Slices with builds in the background and without, in turns."""
    contender = stage.open({BUILD: Setting(kind="building")})[BUILD]
    answers: dict[str, Answers] = {BUILD: [], REST: []}
    for turn in range(pace.rounds):
        stage.say(f"{stage.model}: builds in the background, round {turn + 1}")
        for word in sorted(answers, reverse=turn % 2 == 1):
            contender.become(word)
            answers[word].append(contender.run(pace.build_s))
    return builds_of(answers[BUILD], answers[REST])
