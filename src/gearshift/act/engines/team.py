"""Several engines that work on one region at the same time, each on a part of it.

Must not know how the work is divided: the work itself does.
"""

from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Protocol

import torch

from gearshift.act.engines.protocol import Engine, Job, Stretch
from gearshift.act.openmp import on_threads
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


Rounds = Generator[Sequence[Part], tuple[Sequence[Any], Sequence[float]], Any]
"""Work that comes in several rounds: it gives the parts of one, gets what they gave and how long
each took, and in the end returns the whole."""


class RoundsJob:
    """The first round is under way; the others follow when the result is asked for. What is done
    between them, the calling thread does alone: torch's other threads would then wait busily, for
    milliseconds, on the cores that engines need."""

    __slots__ = ("_engines", "_jobs", "_parts", "_send", "_value", "stretches")

    def __init__(self, rounds: Rounds, engines: Sequence[Engine]) -> None:
        self._engines, self._send = engines, on_threads(1, rounds.send)
        self._value: Any = None
        self.stretches: tuple[Stretch, ...] = ()
        self._go_on(None)

    def _go_on(self, came_of_it: tuple[Sequence[Any], Sequence[float]] | None) -> None:
        """To the next round, if there is one."""
        self._jobs: Sequence[Job] = ()
        try:
            self._begin(self._send(came_of_it))
        except StopIteration as end:
            self._value = end.value

    def _begin(self, parts: Sequence[Part]) -> None:
        self._parts = parts
        self._jobs = started(parts, self._engines)

    def result(self) -> Any:
        if self._jobs:
            while self._jobs:
                results = results_of(self._parts, self._jobs, self._engines)
                spans = stretches_of(self._parts, self._jobs)
                self.stretches += spans
                self._go_on((results, [end_s - begin_s for _, begin_s, end_s, _ in spans]))
            self.stretches += at_rest(self._engines, self.stretches)
        return self._value


def stretches_of(parts: Sequence[Part], jobs: Sequence[Job]) -> tuple[Stretch, ...]:
    return tuple(
        (engine, begin_s, end_s, part.share)
        for part, job in zip(parts, jobs, strict=True)
        for engine, begin_s, end_s, _ in job.stretches
    )


def at_rest(engines: Sequence[Engine], spans: Sequence[Stretch]) -> tuple[Stretch, ...]:
    """Who of the team had nothing to do: none of the work, no time."""
    at_work = {name for name, *_ in spans}
    names = [engine.spec.name for engine in engines]
    return tuple((name, spans[0][1], spans[0][1], 0.0) for name in names if name not in at_work)


def started(parts: Sequence[Part], engines: Sequence[Engine]) -> list[Job]:
    found = []
    for part in parts:
        engine = engines[part.member]
        found.append(named(engine, partial(engine.start, part.work, part.inputs)))
    return found


def results_of(parts: Sequence[Part], jobs: Sequence[Job], engines: Sequence[Engine]) -> list[Any]:
    return [named(engines[p.member], job.result) for p, job in zip(parts, jobs, strict=True)]


def named(engine: Engine, work: Callable[[], Any]) -> Any:
    """Who fails is named: the others of the team are well."""
    try:
        return work()
    except Exception as error:
        raise EngineError(f"{type(error).__name__}: {error}", engine.spec.name) from error


class TeamJob:
    __slots__ = ("_division", "_engines", "_jobs", "_parts", "_value", "stretches")

    def __init__(self, division: Division, engines: Sequence[Engine], inputs: Sequence[Any]):
        self._division, self._engines = division, engines
        self._parts = division.take(inputs)
        self._jobs: Sequence[Job] = started(self._parts, engines)
        self._value: Any = None
        self.stretches: tuple[Stretch, ...] = ()

    def result(self) -> Any:
        if not self.stretches:
            results = results_of(self._parts, self._jobs, self._engines)
            spans = stretches_of(self._parts, self._jobs)
            self.stretches = (*spans, *at_rest(self._engines, spans))
            took_s = [end_s - begin_s for _, begin_s, end_s, _ in spans]
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

    @property
    def cores_of_each(self) -> list[frozenset[int]]:
        return [frozenset(engine.spec.cores) for engine in self.engines]

    def start(self, work: Any, inputs: Sequence[Any]) -> Job:
        """What cannot be divided, the first of them does."""
        if self._closed:
            raise EngineError(f"engine {self.spec.name} is closed")
        if hasattr(work, "rounds"):
            return RoundsJob(work.rounds(inputs), self.engines)
        if not hasattr(work, "take"):
            return self.engines[0].start(work, inputs)
        return TeamJob(work, self.engines, inputs)

    def call(self, work: Callable[[], Any]) -> Any:
        return self.engines[0].call(work)

    def close(self) -> None:
        self._closed = True
