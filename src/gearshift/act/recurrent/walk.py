"""One direction of one layer on its way through a sequence, a chunk at a time.

Between two chunks anything may change but the state. Must not know why it does.
"""

from collections.abc import Callable

import torch
from torch import Tensor

from gearshift.act.recurrent.cell import Cell
from gearshift.act.recurrent.kernels import Kernel, State
from gearshift.act.recurrent.rows import Rows
from gearshift.ir.recurrent import LSTM
from gearshift.plan.unroll import Steps

Setting = Callable[[], tuple[Steps, Kernel]]
"""Asked before every chunk."""


class Walk:
    """Reads `x`, writes `out`; both have a step for each of the sequence, and maybe more, which are
    left alone."""

    __slots__ = ("_cell", "_rows", "_setting", "_x", "at", "final", "out", "state")

    def __init__(
        self, cell: Cell, x: Tensor, state: State, rows: Rows, out: Tensor | None, setting: Setting
    ) -> None:
        self._cell, self._x, self._rows, self._setting = cell, x, rows, setting
        self.out = out
        """None: made by the kernel, if all steps are one chunk."""
        self.state = state
        self.final = state
        """Once it is done: of every row, at its own end."""
        self.at = 0

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

    def next_end(self) -> int:
        return self._rows.chunk_end(self.at, self._setting()[0])

    def go(self, reached: int) -> Steps | None:
        """One chunk, by the setting it gives; None if its input has not come so far."""
        steps, kernel = self._setting()
        rows, at = self._rows, self.at
        end = rows.chunk_end(at, steps)
        if end > reached:
            return None
        if rows.lengths is None:
            y, self.state = kernel(self._part(at, end), self.state)
            self._keep(at, end, y)
            self.final = self.state
        else:
            self._go_ragged(kernel, at, end)
        self.at = end
        return steps

    def _part(self, at: int, end: int) -> Tensor:
        return self._x if end - at == len(self._x) else self._x[at:end]

    def _keep(self, at: int, end: int, y: Tensor) -> None:
        if self.out is not None:
            self.out[at:end, : y.shape[1]] = y
        elif end - at == self._rows.num_steps == len(self._x):
            self.out = y
        else:
            self.out = y.new_zeros((len(self._x), self._rows.num_rows, y.shape[2]))
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
