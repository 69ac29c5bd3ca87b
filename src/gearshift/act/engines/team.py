"""Several engines that work on one region at the same time, each on a part of it.

Must not know how the work is divided: the work itself does.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import torch

from gearshift.act.engines.protocol import Engine, Job, Stretch
from gearshift.errors import EngineError
from gearshift.ir.topology import EngineSpec, team


@dataclass(frozen=True, slots=True)
class Part:
    """What one of the engines, by its number, is to do."""

    member: int
    work: Callable[..., Any]
    inputs: Sequence[Any]
    share: float
    """Of the whole."""
    about: Any = None
    """Which part it is, for who joins them."""


class Division(Protocol):
    """Work that knows how to be divided."""

    def take(self, inputs: Sequence[Any]) -> Sequence[Part]: ...

    def join(self, parts: Sequence[Part], results: Sequence[Any], took_s: Sequence[float]) -> Any:
        """What the parts gave, put together; and how long each took."""


class TeamJob:
    __slots__ = ("_division", "_jobs", "_parts", "_value", "stretches")

    def __init__(self, division: Division, engines: Sequence[Engine], inputs: Sequence[Any]):
        self._division = division
        self._parts = division.take(inputs)
        self._jobs: Sequence[Job] = [
            engines[part.member].start(part.work, part.inputs) for part in self._parts
        ]
        self._value: Any = None
        self.stretches: tuple[Stretch, ...] = ()

    def result(self) -> Any:
        if not self.stretches:
            results = [job.result() for job in self._jobs]
            self.stretches = tuple(
                (engine, begin_s, end_s, part.share)
                for part, job in zip(self._parts, self._jobs, strict=True)
                for engine, begin_s, end_s, _ in job.stretches
            )
            took_s = [end_s - begin_s for _, begin_s, end_s, _ in self.stretches]
            self._value = self._division.join(self._parts, results, took_s)
        return self._value


class TeamEngine:
    """The engines are others': they are not closed with the team."""

    def __init__(self, engines: Sequence[Engine]) -> None:
        cores = tuple(dict.fromkeys(core for engine in engines for core in engine.spec.cores))
        name = team([engine.spec.name for engine in engines])
        self.engines = tuple(engines)
        self.spec = EngineSpec(name=name, kind="team", cores=cores)
        self._closed = False
        self.device = torch.device("cpu")

    def start(self, work: Any, inputs: Sequence[Any]) -> Job:
        """What cannot be divided, the first of them does."""
        if self._closed:
            raise EngineError(f"engine {self.spec.name} is closed")
        if not hasattr(work, "take"):
            return self.engines[0].start(work, inputs)
        return TeamJob(work, self.engines, inputs)

    def call(self, work: Callable[[], Any]) -> Any:
        return self.engines[0].call(work)

    def close(self) -> None:
        self._closed = True
