"""Some layers of a stack on one engine: a sequence through all of them, one after the other or
chunk by chunk as another engine hands them over.

On the hot path. Must not know engines; whoever runs it is on one.
"""

from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from time import perf_counter

import torch
from torch import Tensor

from gearshift.act.recurrent.cell import Cell
from gearshift.act.recurrent.kernels import Kernel, State
from gearshift.act.recurrent.rows import Rows, reversed_rows
from gearshift.act.recurrent.walk import Setting, Walk
from gearshift.plan.unroll import Steps

MAX_KEPT = 4096


@dataclass(frozen=True, slots=True)
class Profile:
    """The settings in force for some layers: for each its steps, and a kernel per direction."""

    layers: tuple[tuple[Steps, tuple[Kernel, ...]], ...]


@dataclass(frozen=True, slots=True)
class Chunk:
    """What was done, for who watches."""

    layer: int
    begin_s: float
    end_s: float
    at: int
    """The first of its steps."""
    num_steps: int
    num_rows: int
    steps: Steps


class Board:
    """Where the settings in force are read before every chunk: one reference, so that a call in the
    middle of a sequence goes on by new ones."""

    __slots__ = ("own", "profile", "seen")

    def __init__(self, profile: Profile) -> None:
        self.own = profile
        """As it was built;"""
        self.profile = profile
        """as it is."""
        self.seen: deque[Chunk] = deque(maxlen=MAX_KEPT)

    def setting(self, layer: int, direction: int) -> Setting:
        def read() -> tuple[Steps, Kernel]:
            steps, kernels = self.profile.layers[layer]
            return steps, kernels[direction]

        return read


class Runner:
    """Layers `first` and on."""

    __slots__ = ("board", "cells", "first")

    def __init__(self, cells: Sequence[tuple[Cell, ...]], board: Board, first: int = 0) -> None:
        self.cells, self.board, self.first = tuple(cells), board, first

    @property
    def threads(self) -> list[int]:
        """That its kernels have of their own."""
        kernels = [kernel for _, some in self.board.own.layers for kernel in some]
        return [number for kernel in kernels for number in getattr(kernel, "threads", ())]

    def layers(
        self, x: Tensor, states: Sequence[Sequence[State]], rows: Rows
    ) -> tuple[Tensor, list[tuple[State, ...]]]:
        """All of them, one after the other."""
        finals = []
        for number, state in enumerate(states):
            x, final = self.layer(number, x, state, rows)
            finals.append(final)
        return x, finals

    def layer(
        self, number: int, x: Tensor, states: Sequence[State], rows: Rows
    ) -> tuple[Tensor, tuple[State, ...]]:
        """The sequence, and for each direction the state at each row's end."""
        cells = self.cells[number]
        if len(cells) == 1:
            walk = self.walk(number, 0, x, states[0], rows, None)
            self.finish(walk, number)
            assert walk.out is not None
            return walk.out, (walk.final,)
        size = cells[0].made_size
        out = x.new_zeros((len(x), rows.num_rows, size * len(cells)))
        finals = [
            self.direction(number, i, x, state, rows, out[:, :, i * size : (i + 1) * size])
            for i, state in enumerate(states)
        ]
        return out, tuple(finals)

    def direction(
        self, number: int, direction: int, x: Tensor, state: State, rows: Rows, out: Tensor
    ) -> State:
        """One of two, into its part of the result."""
        if not self.cells[number][direction].reverse:
            walk = self.walk(number, direction, x, state, rows, out)
            self.finish(walk, number)
            return walk.final
        turn = rows.reversal(len(x))
        walk = self.walk(number, direction, reversed_rows(x, turn), state, rows, None)
        self.finish(walk, number)
        assert walk.out is not None
        out.copy_(reversed_rows(walk.out, turn))
        return walk.final

    def walk(
        self,
        number: int,
        direction: int,
        x: Tensor,
        state: State,
        rows: Rows,
        out: Tensor | None,
    ) -> Walk:
        layer = self.first + number
        setting = self.board.setting(layer, direction)
        return Walk(self.cells[number][direction], x, state, rows, out, setting)

    def finish(self, walk: Walk, number: int) -> None:
        while not walk.done:
            self.go(walk, number, walk.num_steps)

    def go(self, walk: Walk, number: int, reached: int) -> bool:
        """A chunk, if its input has come so far."""
        begin_s, at, num_rows = perf_counter(), walk.at, walk.num_rows
        steps = walk.go(reached)
        if steps is None:
            return False
        layer, end_s = self.first + number, perf_counter()
        chunk = Chunk(layer, begin_s, end_s, at, walk.at - at, num_rows, steps)
        self.board.seen.append(chunk)
        return True

    def flow(
        self,
        x: Tensor,
        states: Sequence[Sequence[State]],
        rows: Rows,
        out: Tensor,
        come: Callable[[], int],
        tell: Callable[[int], None],
    ) -> list[tuple[State, ...]]:
        """Layers of one direction into `out`, each going as far as the one before it has come:
        `come` waits and says how far the first may go, `tell` says how far the last has come."""
        walks, below = [], x
        for number, state in enumerate(states):
            size = self.cells[number][0].made_size
            made = out if number + 1 == len(states) else _room(x, rows, size)
            walks.append(self.walk(number, 0, below, state[0], rows, made))
            below = made
        ready = 0
        while not walks[-1].done:
            while ready < walks[0].next_end():
                ready = come()
            for number, walk in enumerate(walks):
                reached = ready if number == 0 else walks[number - 1].at
                if not walk.done:
                    self.go(walk, number, reached)
            tell(walks[-1].at)
        return [(walk.final,) for walk in walks]


def _room(x: Tensor, rows: Rows, size: int) -> Tensor:
    """Beyond the end of a row there is nothing."""
    make = torch.empty if rows.lengths is None else torch.zeros
    return make((len(x), rows.num_rows, size), dtype=x.dtype)
