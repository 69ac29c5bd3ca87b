"""Ways of a sequence through the layers of a stack: on one engine, or over a team by rows, by
directions, or as a wavefront.

On the hot path. Must not know how the layers were built, nor the op they stand for.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import accumulate
from queue import SimpleQueue
from typing import Any

import torch
from torch import Tensor

from gearshift.act.engines.team import Part, Rounds
from gearshift.act.lower.shares import Shares
from gearshift.act.recurrent.kernels import State
from gearshift.act.recurrent.rows import Rows
from gearshift.act.recurrent.runner import Runner
from gearshift.errors import CompileError

Finals = list[tuple[State, ...]]
Answer = tuple[Tensor, Finals]
"""The sequence, and for each layer and direction the state at each row's end."""


@dataclass(frozen=True, slots=True)
class Asked:
    """A call, time first."""

    x: Tensor
    states: tuple[tuple[State, ...], ...]
    """For each layer, for each direction."""
    rows: Rows
    order: Tensor | None = None
    """Where each row was, if they had to be sorted."""

    def some(self, rows: slice) -> "Asked":
        """Of rows next to each other."""
        states = tuple(
            tuple(tuple(part[:, rows].contiguous() for part in state) for state in layer)
            for layer in self.states
        )
        lengths = self.rows.lengths
        uniform = Rows(self.rows.num_steps, rows.stop - rows.start)
        mine = uniform if lengths is None else Rows.ragged(lengths[rows])
        return Asked(self.x[:, rows].contiguous(), states, mine)


class OnOne:
    """All layers on the engine it is called on."""

    __slots__ = ("runners",)

    def __init__(self, runner: Runner) -> None:
        self.runners = [runner]

    def __call__(self, asked: Asked) -> Answer:
        return self.runners[0].layers(asked.x, asked.states, asked.rows)


class ByRows:
    """Each engine has all layers, for some of the rows."""

    __slots__ = ("runners", "shares")

    def __init__(self, runners: Sequence[Runner], shares: Shares) -> None:
        self.runners, self.shares = list(runners), shares

    def rounds(self, asked: Asked) -> Rounds:
        spans = self._spans(asked.rows)
        parts = [
            Part(member, self._run, (member, asked.some(span)), share)
            for member, (span, share) in enumerate(spans)
            if span.stop > span.start
        ]
        results, took_s = yield parts
        for part, seconds in zip(parts, took_s, strict=True):
            self.shares.note(part.member, part.share * asked.rows.num_rows, seconds)
        for member in {*range(len(spans))} - {part.member for part in parts}:
            self.shares.left_out(member)
        finals = zip(*(found for _, found in results), strict=True)
        return torch.cat([out for out, _ in results], 1), list(map(_joined, finals))

    def _run(self, member: int, asked: Asked) -> Answer:
        return self.runners[member].layers(asked.x, asked.states, asked.rows)

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


def _joined(layer: Sequence[tuple[State, ...]]) -> tuple[State, ...]:
    """Of one layer, the states of all rows."""
    directions = zip(*layer, strict=True)
    return tuple(
        tuple(torch.cat(parts, 1) for parts in zip(*states, strict=True)) for states in directions
    )


class ByDirections:
    """Of each layer, one direction on each engine; the next layer needs both."""

    __slots__ = ("runners",)

    def __init__(self, runners: Sequence[Runner]) -> None:
        self.runners = list(runners)

    def rounds(self, asked: Asked) -> Rounds:
        x, finals = asked.x, []
        for number, states in enumerate(asked.states):
            size = self.runners[0].cells[number][0].made_size
            out = _room(asked, size * len(states))
            parts = [
                Part(
                    direction % len(self.runners),
                    self.runners[direction % len(self.runners)].direction,
                    (number, direction, x, state, asked.rows, _columns(out, direction, size)),
                    1 / len(states),
                )
                for direction, state in enumerate(states)
            ]
            results, _ = yield parts
            finals.append(tuple(results))
            x = out
        return x, finals


def _columns(out: Tensor, direction: int, size: int) -> Tensor:
    return out[:, :, direction * size : (direction + 1) * size]


class Wavefront:
    """Consecutive layers on each engine; chunks flow from one to the next."""

    __slots__ = ("runners",)

    def __init__(self, runners: Sequence[Runner]) -> None:
        self.runners = list(runners)

    def rounds(self, asked: Asked) -> Rounds:
        """Engines wait only for those before them, so that calls at the same time cannot wait for
        each other in a circle."""
        queues: list[SimpleQueue[int]] = [SimpleQueue() for _ in self.runners]
        outs = [self._out(runner, asked) for runner in self.runners]
        xs = [asked.x, *outs[:-1]]
        parts = []
        for member, runner in enumerate(self.runners):
            come = _all_there(asked) if member == 0 else _waiting(queues[member - 1])
            span = slice(runner.first, runner.first + len(runner.cells))
            given = (asked.states[span], asked.rows, outs[member], come, queues[member].put)
            share = len(runner.cells) / len(asked.states)
            parts.append(
                Part(member, _flowing(runner, queues[member]), (xs[member], *given), share)
            )
        results, _ = yield parts
        return outs[-1], [final for found in results for final in found]

    def _out(self, runner: Runner, asked: Asked) -> Tensor:
        return _room(asked, runner.cells[-1][0].made_size)


def _room(asked: Asked, size: int) -> Tensor:
    """For what a layer gives. Threads of engines write to it: they are in no inference mode, even
    if the caller is. Of ragged rows the ends stay zero."""
    make = torch.empty if asked.rows.lengths is None else torch.zeros
    with torch.inference_mode(False):
        return make((len(asked.x), asked.rows.num_rows, size), dtype=asked.x.dtype)


BROKEN = -1
"""Told instead of how far it has come by an engine that failed."""


def _all_there(asked: Asked) -> Callable[[], int]:
    return lambda: asked.rows.num_steps


def _waiting(queue: "SimpleQueue[int]") -> Callable[[], int]:
    def come() -> int:
        reached = queue.get()
        if reached == BROKEN:
            raise CompileError("the layers before these failed")
        return reached

    return come


def _flowing(runner: Runner, queue: "SimpleQueue[int]") -> Callable[..., Finals]:
    def run(*given: Any) -> Finals:
        try:
            return runner.flow(*given)
        except BaseException:
            queue.put(BROKEN)
            raise

    return run
