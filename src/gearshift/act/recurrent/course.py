"""A call on its way through a stack: how far each layer and direction has come.

Between two chunks whoever goes on with it may change, engines and all. On the hot path. Must not
know who does.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from gearshift.act.recurrent.cell import Cell
from gearshift.act.recurrent.kernels import State
from gearshift.act.recurrent.rows import Rows, reversed_rows
from gearshift.act.recurrent.walk import Walk, room


@dataclass(frozen=True, slots=True)
class Asked:
    """A call, time first."""

    x: Tensor
    states: tuple[tuple[State, ...], ...]
    """For each layer, for each direction."""
    rows: Rows
    order: Tensor | None = None
    """Where each row was, if they had to be sorted."""

    def some(self, span: slice) -> "Asked":
        """Of rows next to each other."""
        states = tuple(
            tuple(tuple(part[:, span].contiguous() for part in state) for state in layer)
            for layer in self.states
        )
        return Asked(self.x[:, span].contiguous(), states, self.rows.some(span))


@dataclass(slots=True)
class Last:
    """What was done last for a layer, or for the one before it."""

    by: object = None
    end_s: float = 0.0


class Layer:
    """A walk for each direction. Where there are two, each has its columns of the whole."""

    __slots__ = ("_cells", "_ended", "_rows", "_states", "_walks", "_whole", "_x", "last")

    def __init__(
        self,
        cells: Sequence[Cell],
        x: Tensor,
        states: Sequence[State],
        rows: Rows,
        last: Last,
    ) -> None:
        self._cells, self._x, self._states, self._rows = cells, x, states, rows
        self.last = Last(last.by, last.end_s)
        self._walks: list[Walk | None] = [None] * len(cells)
        self._ended = [False] * len(cells)
        size = sum(cell.made_size for cell in cells)
        self._whole = room(x, rows, size) if len(cells) > 1 else None

    def come_as_far_as(self, whole: "Layer", span: slice) -> None:
        """It has some rows of a layer that is under way."""
        self.last = whole.last
        if self._whole is not None and whole._whole is not None:
            self._whole.copy_(whole._whole[:, span])
        for direction, its in enumerate(whole._walks):
            if its is None:
                continue
            if whole._ended[direction] and self._whole is not None:
                self._ended[direction] = True  # what it made is in its columns
            mine = self.walk(direction)
            mine.come_as_far_as(its, span)
            if its.out is not None and (self._whole is None or self._cells[direction].reverse):
                mine.out = its.out[:, span].contiguous()
            if mine.done and not self._ended[direction]:  # others may go on
                self.end(direction)

    @property
    def num_directions(self) -> int:
        return len(self._cells)

    def walk(self, direction: int) -> Walk:
        """Whoever has a direction begins it."""
        walk = self._walks[direction]
        if walk is None:
            x = self._x
            if self._cells[direction].reverse:
                x = reversed_rows(x, self._rows.reversal(len(x)))
            state, out = self._states[direction], self._room_of(direction)
            walk = self._walks[direction] = Walk(self._cells[direction], x, state, self._rows, out)
        return walk

    def end(self, direction: int) -> None:
        """All its steps are made: what began at the other end is turned round."""
        if self._cells[direction].reverse:
            made = self.walk(direction).out
            assert made is not None
            turn = self._rows.reversal(len(made))
            self._columns(direction).copy_(reversed_rows(made, turn))
            self.walk(direction).let_go()
        self._ended[direction] = True

    def _room_of(self, direction: int) -> Tensor | None:
        straight = self._whole is not None and not self._cells[direction].reverse
        return self._columns(direction) if straight else None

    def _columns(self, direction: int) -> Tensor:
        assert self._whole is not None
        size = self._cells[direction].made_size
        return self._whole[:, :, direction * size : (direction + 1) * size]

    @property
    def done(self) -> bool:
        return all(self._ended)

    @property
    def out(self) -> Tensor:
        """The sequence it makes, as far as it is made."""
        if self._whole is not None:
            return self._whole
        made = self.walk(0).out
        assert made is not None
        return made

    @property
    def finals(self) -> tuple[State, ...]:
        """For each direction the state at each row's end."""
        return tuple(self.walk(direction).final for direction in range(self.num_directions))


class Course:
    """All layers of a call, or of some of its rows."""

    __slots__ = ("_cells", "_layers", "_parts", "asked")

    def __init__(self, cells: Sequence[Sequence[Cell]], asked: Asked) -> None:
        self._cells, self.asked = cells, asked
        self._layers: list[Layer] = []
        self._parts: list[Course] = []

    @property
    def num_layers(self) -> int:
        return len(self._cells)

    @property
    def begun(self) -> bool:
        return bool(self._layers or self._parts)

    @property
    def done(self) -> bool:
        if self._parts:
            return all(part.done for part in self._parts)
        return len(self._layers) == self.num_layers and self._layers[-1].done

    @property
    def divided(self) -> bool:
        return bool(self._parts)

    @property
    def parts(self) -> "Sequence[Course]":
        """Rows that go their own way; itself, if none do."""
        return self._parts or (self,)

    def divide(self, spans: Sequence[slice]) -> None:
        """From here on, rows go their own way."""
        for span in spans:
            part = Course(self._cells, self.asked.some(span))
            for number, layer in enumerate(self._layers):
                part.layer(number).come_as_far_as(layer, span)
            self._parts.append(part)
        self._layers.clear()

    def layer(self, number: int) -> Layer:
        """Begun, if it was not yet; what it reads is there, or has room."""
        asked = self.asked
        while len(self._layers) <= number:
            mine = len(self._layers)
            x, last = (self._layers[-1].out, self._layers[-1].last) if mine else (asked.x, Last())
            layer = Layer(self._cells[mine], x, asked.states[mine], asked.rows, last)
            self._layers.append(layer)
        return self._layers[number]

    def all_at_once(self) -> Sequence[Layer]:
        """Of one direction: each reads what the one before it makes, while it is made."""
        for number in range(self.num_layers):
            self.layer(number).walk(0).make_room()
        return self._layers

    @property
    def out(self) -> Tensor:
        """What the last layer made."""
        if self._parts:
            return torch.cat([part.out for part in self._parts], 1)
        return self._layers[-1].out

    @property
    def finals(self) -> list[tuple[State, ...]]:
        """For each layer and direction the state at each row's end."""
        if self._parts:
            return list(map(_joined, zip(*(part.finals for part in self._parts), strict=True)))
        return [layer.finals for layer in self._layers]


def _joined(layer: Sequence[tuple[State, ...]]) -> tuple[State, ...]:
    """Of one layer, the states of all rows."""
    directions = zip(*layer, strict=True)
    return tuple(
        tuple(torch.cat(parts, 1) for parts in zip(*states, strict=True)) for states in directions
    )
