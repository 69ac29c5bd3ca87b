"""A model on stage: its contenders, each in a process of its own, and how they take turns.

Must not know what is compared with what.
"""

import tempfile
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from math import inf
from pathlib import Path
from typing import Any

from gearshift.bench.arena import Contender, Setting
from gearshift.bench.score import TWICE, TWO_SLICES, in_the_running, slices_of
from gearshift.errors import GearshiftError

Say = Callable[[str], None]
Answers = list[dict[str, Any]]
EXPORT = "export"
NEEDS_EXPORT = ("onnxruntime", "openvino", TWICE)


@dataclass(frozen=True, slots=True, kw_only=True)
class LifePace:
    """Of Gearshift, before it takes turns with the others."""

    seconds: float = 60.0
    longer: int = 3
    """Then so many times a bit longer, as long as something is under way."""
    longer_s: float = 5.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Turns:
    slice_s: float = 1.0
    rounds: int = 6
    """Slices of each contender,"""
    min_calls: int = 30
    """and more of one that has had fewer calls than this;"""
    most: int = 12
    """so many slices at most: beside a neighbour one call may take a second."""
    far: float = inf
    """Who took so many times longer than the best in two slices has no more of them."""


@dataclass(slots=True, kw_only=True)
class Stage:
    """One model, and its contenders, each in a process of its own."""

    model: str
    folder: Path
    stack: ExitStack
    say: Say
    batch: int | None = None
    ready_s: dict[str, float] = field(default_factory=dict)
    failed: dict[str, str] = field(default_factory=dict)
    """Who could not be opened, and why."""

    def open(
        self, settings: Mapping[str, Setting], may_fail: Collection[str] = ()
    ) -> dict[str, Contender]:
        """They load their libraries side by side, and get ready one after the other. Who may fail
        and does is told in `failed`, and left out."""
        made = {name: self._make(name, setting) for name, setting in settings.items()}
        for contender in made.values():
            contender.arrive()
        for name, contender in made.items():
            self.say(f"{self.model}: {name} gets ready")
            try:
                contender.open()
            except GearshiftError as error:
                if name not in may_fail:
                    raise
                self.failed[name] = str(error)
            else:
                self.ready_s[name], self.batch = contender.ready_s, contender.batch
        return {name: contender for name, contender in made.items() if name not in self.failed}

    def _make(self, name: str, setting: Setting) -> Contender:
        contender = Contender(self.model, setting, self.folder, self.folder / f"home {name}")
        self.stack.callback(contender.close)
        return contender

    def export(self, sizes: int | None = None, instead: str = "") -> None:
        """For those who run ONNX."""
        setting = Setting(kind=EXPORT, warm_up=0, sizes=sizes, instead=instead)
        self.open({EXPORT: setting})[EXPORT].close()

    def paid_s(self, name: str) -> float:
        """Until it could be called, its export included."""
        return self.ready_s[name] + (self.ready_s[EXPORT] if name in NEEDS_EXPORT else 0.0)


@contextmanager
def stage_of(model: str, say: Say) -> Iterator[Stage]:
    with ExitStack() as stack:
        folder = tempfile.TemporaryDirectory(prefix="gearshift-", ignore_cleanup_errors=True)
        path = Path(stack.enter_context(folder))
        yield Stage(model=model, folder=path, stack=stack, say=say)


def lived(gearshift: Contender, pace: LifePace) -> Answers:
    """Until nothing is under way, or for long enough."""
    answers = [gearshift.run(pace.seconds)]
    while answers[-1]["under_way"] and len(answers) <= pace.longer:
        answers.append(gearshift.run(pace.longer_s))
    return answers


def in_turns(
    stage: "Stage", contenders: Mapping[str, Contender], pace: Turns
) -> dict[str, Answers]:
    """Slices of each, as many odd ones as even ones, in rotating order."""
    names, turn = list(contenders), 0
    answers: dict[str, Answers] = {name: [] for name in names}
    while wanting := [name for name in names if _wants(answers[name], turn, pace)]:
        if turn == TWO_SLICES:
            seen = {name: slices_of(found) for name, found in answers.items()}
            wanting = names = in_the_running(seen, pace.far)
        stage.say(f"{stage.model}: in turns, round {turn + 1}, {len(wanting)} contenders")
        place = turn % len(wanting)
        for name in wanting[place:] + wanting[:place]:
            answers[name].append(contenders[name].run(pace.slice_s))
        turn += 1
    return answers


def _wants(answers: Answers, turn: int, pace: Turns) -> bool:
    """Another slice."""
    if turn < pace.rounds or len(answers) % 2:
        return True
    few = sum(len(answer["call_s"]) for answer in answers) < pace.min_calls
    return few and len(answers) == turn < pace.most
