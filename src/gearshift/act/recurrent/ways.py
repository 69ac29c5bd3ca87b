"""Ways of a sequence through the layers of a stack: on one engine, or over a team by rows, by
directions, or as a wavefront.

Each goes on with a call from wherever it has come, until it is done or to be left to another way.
On the hot path. Must not know how the layers were built, nor the op they stand for.
"""

from collections.abc import Callable, Generator, Sequence
from itertools import accumulate
from queue import SimpleQueue
from typing import Any

from gearshift.act.engines.team import Part
from gearshift.act.lower.shares import Shares
from gearshift.act.openmp import on_threads
from gearshift.act.recurrent.course import Course, Layer
from gearshift.act.recurrent.rows import Rows
from gearshift.act.recurrent.runner import Leave, Runner
from gearshift.errors import CompileError

Steering = Generator[Sequence[Part], tuple[Sequence[Any], Sequence[float]], None]
"""The parts of a round, one round after the other; what they gave is in the course."""


class OnOne:
    """All layers on the engine it is called on."""

    __slots__ = ("_through", "runners")

    def __init__(self, runner: Runner, threads: int | None = None) -> None:
        """Torch's own kernels use so many threads; None: as many as whoever calls them."""
        self.runners = [runner]
        through = runner.through
        self._through = through if threads is None else on_threads(threads, through)

    def __call__(self, course: Course, leave: Leave) -> None:
        self._through(course, leave)


class ByRows:
    """Each engine has all layers, for some of the rows."""

    __slots__ = ("runners", "shares")

    def __init__(self, runners: Sequence[Runner], shares: Shares) -> None:
        self.runners, self.shares = list(runners), shares

    def rounds(self, course: Course, leave: Leave) -> Steering:
        """How fast engines are is known from calls they had from beginning to end."""
        if course.divided:
            yield [
                self._part(number % len(self.runners), part, 1 / len(course.parts), leave)
                for number, part in enumerate(course.parts)
            ]
            return
        is_new = not course.begun
        shared = [
            (member, span, share)
            for member, (span, share) in enumerate(self._spans(course.asked.rows))
            if span.stop > span.start
        ]
        course.divide([span for _, span, _ in shared])
        _, took_s = yield [
            self._part(member, part, share, leave)
            for (member, _, share), part in zip(shared, course.parts, strict=True)
        ]
        if is_new and course.done:
            self._learn({m: share for m, _, share in shared}, took_s, course.asked.rows.num_rows)

    def _part(self, member: int, course: Course, share: float, leave: Leave) -> Part:
        return Part(member, self.runners[member].through, (course, leave), share)

    def _learn(self, shares: dict[int, float], took_s: Sequence[float], num_rows: int) -> None:
        for (member, share), seconds in zip(shares.items(), took_s, strict=True):
            self.shares.note(member, share * num_rows, seconds)
        for member in range(len(self.runners)):
            if member not in shares:
                self.shares.left_out(member)

    def _spans(self, rows: Rows) -> list[tuple[slice, float]]:
        """Rows next to each other, so that the steps of all of them are shared out; who gets
        anything gets a row."""
        lengths = rows.lengths or (rows.num_steps,) * rows.num_rows
        counts = self.shares.of(len(lengths))
        wants = [sum(lengths) * done / len(lengths) for done in accumulate(counts)]
        spans, begin, done = [], 0, 0
        for member, (count, wanted) in enumerate(zip(counts, wants, strict=True)):
            end = begin
            while end < len(lengths) and (
                done + lengths[end] / 2 <= wanted or (end == begin and count > 0)
            ):
                done += lengths[end]
                end += 1
            end = len(lengths) if member + 1 == len(wants) else end
            spans.append((slice(begin, end), sum(lengths[begin:end]) / sum(lengths)))
            begin = end
        return spans


class ByDirections:
    """Of each layer, one direction on each engine; the next layer needs both."""

    __slots__ = ("runners",)

    def __init__(self, runners: Sequence[Runner]) -> None:
        self.runners = list(runners)

    def rounds(self, course: Course, leave: Leave) -> Steering:
        for part in course.parts:
            for number in range(part.num_layers):
                layer = part.layer(number)
                if not layer.done:
                    yield [
                        self._part(layer, number, direction, leave)
                        for direction in range(layer.num_directions)
                    ]
                if not layer.done:
                    return

    def _part(self, layer: Layer, number: int, direction: int, leave: Leave) -> Part:
        member = direction % len(self.runners)
        work, share = self.runners[member].finish, 1 / layer.num_directions
        return Part(member, work, (layer, number, direction, leave), share)


class Wavefront:
    """Consecutive layers on each engine; chunks flow from one to the next."""

    __slots__ = ("runners",)

    def __init__(self, runners: Sequence[Runner]) -> None:
        self.runners = list(runners)

    def rounds(self, course: Course, leave: Leave) -> Steering:
        for part in course.parts:
            yield self._flowing(part, leave)
            if not part.done:
                return

    def _flowing(self, course: Course, leave: Leave) -> list[Part]:
        """Engines wait only for those before them, so that calls at the same time cannot wait for
        each other in a circle."""
        layers = course.all_at_once()
        parts, come = [], _all_of(course)
        for member, runner in enumerate(self.runners):
            told: SimpleQueue[int | None] = SimpleQueue()
            work = _telling(runner, told)
            share = len(runner.layers) / course.num_layers
            parts.append(Part(member, work, (layers, come, told.put, leave), share))
            come = _waiting(told)
        return parts


BROKEN = -1
"""Told instead of how far it has come by an engine that failed; None by one that left."""


def _all_of(course: Course) -> Callable[[], int | None]:
    return lambda: course.asked.rows.num_steps


def _waiting(told: "SimpleQueue[int | None]") -> Callable[[], int | None]:
    def come() -> int | None:
        reached = told.get()
        if reached == BROKEN:
            raise CompileError("the layers before these failed")
        return reached

    return come


def _telling(runner: Runner, told: "SimpleQueue[int | None]") -> Callable[..., None]:
    def run(*given: Any) -> None:
        try:
            runner.flow(*given)
        except BaseException:
            told.put(BROKEN)
            raise
        told.put(None)

    return run
