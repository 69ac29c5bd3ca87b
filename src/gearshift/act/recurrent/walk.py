"""One direction of one layer on its way through a sequence, a chunk at a time.

Between two chunks anything may change but the state. Must not know why it does.
"""

import torch
from torch import Tensor

from gearshift.act.recurrent.cell import Cell
from gearshift.act.recurrent.kernels import Kernel, State
from gearshift.act.recurrent.rows import Rows
from gearshift.ir.recurrent import LSTM
from gearshift.plan.unroll import Steps


class Walk:
    """Reads `x`, writes `out`; both have a step for each of the sequence, and maybe more, which are
    left alone."""

    __slots__ = ("_cell", "_rows", "_x", "at", "final", "out", "state")

    def __init__(
        self, cell: Cell, x: Tensor, state: State, rows: Rows, out: Tensor | None = None
    ) -> None:
        self._cell, self._x, self._rows = cell, x, rows
        self.out = out
        """None: made by the kernel, if all steps are one chunk."""
        self.state = state
        self.final = state
        """Once it is done: of every row, at its own end."""
        self.at = 0

    def come_as_far_as(self, whole: "Walk", span: slice) -> None:
        """It has some rows of a walk that is under way."""
        self.state = tuple(part[:, span].contiguous() for part in whole.state)
        self.final = tuple(part[:, span].clone() for part in whole.final)
        self.at = whole.at

    def let_go(self) -> None:
        """Of what it read and made: nobody will ask for it here."""
        self._x, self.out = self._x[:0], None

    def make_room(self) -> None:
        """So that others may read what it has made before it is done."""
        if self.out is None:
            self.out = room(self._x, self._rows, self._cell.made_size)

    @property
    def num_rows(self) -> int:
        """That have a step where it is."""
        return self._rows.alive(self.at)

    @property
    def num_steps(self) -> int:
        return self._rows.num_steps

    @property
    def done(self) -> bool:
        return self.at >= self._rows.num_steps

    def next_end(self, steps: Steps) -> int:
        return self._rows.chunk_end(self.at, steps)

    def go(self, steps: Steps, kernel: Kernel, reached: int) -> bool:
        """One chunk; False if its input has not come so far."""
        rows, at = self._rows, self.at
        end = rows.chunk_end(at, steps)
        if end > reached:
            return False
        if rows.lengths is None:
            y, self.state = kernel(self._part(at, end), self.state)
            self._keep(at, end, y)
            self.final = self.state
        else:
            self._go_ragged(kernel, at, end)
        self.at = end
        return True

    def _part(self, at: int, end: int) -> Tensor:
        return self._x if end - at == len(self._x) else self._x[at:end]

    def _keep(self, at: int, end: int, y: Tensor) -> None:
        if self.out is not None:
            self.out[at:end, : y.shape[1]] = y
        elif end - at == self._rows.num_steps == len(self._x):
            self.out = y
        else:
            self.make_room()
            assert self.out is not None
            self.out[at:end, : y.shape[1]] = y

    def _go_ragged(self, kernel: Kernel, at: int, end: int) -> None:
        """Only rows that are still there; those that end on the way are taken where they do."""
        lengths = self._rows.lengths
        assert lengths is not None
        here, left = self._rows.alive(at), self._rows.alive(end)
        before = tuple(part[:, :here] for part in self.state)
        x = self._x[at:end, :here]
        y, after = kernel(x, before)
        if at == 0:
            self.final = tuple(part.clone() for part in self.state)
        full = self._rows.alive(end - 1)  # those before it have all steps of the chunk
        for part, value in zip(self.final, after, strict=True):
            part[:, left:full] = value[:, left:full]
        if full < here:
            lasts = torch.tensor(lengths[full:here]) - (at + 1)
            self._end_within(x[:, full:], y[:, full:], [b[:, full:] for b in before], lasts, full)
            y[:, full:].masked_fill_(_over(len(x), lasts), 0)
        self._keep(at, end, y)
        self.state = tuple(part[:, :left].contiguous() for part in after)

    def _end_within(
        self, x: Tensor, y: Tensor, before: list[Tensor], lasts: Tensor, first: int
    ) -> None:
        """The state of rows that end before the chunk does, after their last steps: their last
        output, and for an LSTM what the cell held then."""
        span = slice(first, first + x.shape[1])
        self.final[0][0, span] = y[lasts, torch.arange(x.shape[1])]
        if self._cell.kind == LSTM:
            most = int(lasts.max()) + 1
            came = torch.cat([before[0], y[: most - 1]])
            self.final[1][0, span] = cell_state(self._cell, x[:most], came, before[1][0], lasts)


def room(x: Tensor, rows: Rows, size: int) -> Tensor:
    """For what is made of a sequence. Threads of engines write to it: they are in no inference
    mode, even if the caller is. Beyond the end of a row there is nothing."""
    make = torch.empty if rows.lengths is None and rows.num_steps == len(x) else torch.zeros
    with torch.inference_mode(False):
        return make((len(x), rows.num_rows, size), dtype=x.dtype)


def _over(num_steps: int, lasts: Tensor) -> Tensor:
    """Where each row is over, for all it has at a step."""
    return (torch.arange(num_steps).unsqueeze(1) > lasts).unsqueeze(2)


def cell_state(cell: Cell, x: Tensor, came: Tensor, c: Tensor, lasts: Tensor) -> Tensor:
    """What an LSTM's cell holds after the last step of each row, from its inputs and the outputs it
    had before each step: all gates at once, then a step is a product and a sum."""
    w_ih, w_hh = cell.weights[:2]
    biases = cell.biases or (None, None)
    gates = torch.nn.functional.linear(x, w_ih, biases[0])
    gates += torch.nn.functional.linear(came, w_hh, biases[1])
    i, f, g, _ = gates.chunk(4, -1)
    keep, add = torch.sigmoid(f), torch.sigmoid(i) * torch.tanh(g)
    over = _over(len(x), lasts)
    keep, add = keep.masked_fill(over, 1.0), add.masked_fill(over, 0.0)
    for kept, added in zip(keep.unbind(0), add.unbind(0), strict=True):
        c = torch.addcmul(added, kept, c)
    return c
