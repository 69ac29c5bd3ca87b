"""Some rows of a region: what is open in its build, what to feed it, where its results belong.

Must not know who runs which rows, or when.
"""

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from gearshift.act.backends.protocol import Order
from gearshift.act.lower.independence import Axis
from gearshift.act.lower.rows import FEW, MORE, Rows, rows_of
from gearshift.capture.program import Shapes


class RowLedger:
    """Of one region at the sizes of some leaves. Raises Undivided if its rows may mix."""

    def __init__(self, order: Order, leaves: Sequence[Any]) -> None:
        assert order.shapes is not None
        self._fragment = order.fragment
        self._rows = rows_of(order.fragment, order.ops)
        self._bound = order.fragment.sizes.bind(leaves)
        self.num_rows = self._bound[self._rows.symbol]
        some = [self._sizes_at(count) for count in (FEW, MORE, self.num_rows)]
        settled = {n: size for n, size in some[0].items() if some[1][n] == some[2][n] == size}
        self.open_order = replace(order, shapes=_open(order.shapes, self._rows), sizes=settled)
        """With the number of rows left open."""

    def _sizes_at(self, count: int) -> dict[str, int]:
        return self._fragment.size_numbers({**self._bound, self._rows.symbol: count})

    def axes(self, names: Sequence[str]) -> list[Axis | None]:
        """For each value, where its rows are; None if it has none."""
        return [self._rows.axes.get(name) for name in names]

    def feeds(self, sizes: Sequence[str]) -> "Feeds":
        """The sizes to feed."""

        def at(count: int) -> tuple[int, ...]:
            table = self._sizes_at(count) if sizes else {}
            return tuple(table[name] for name in sizes)

        return Feeds(at)


class Feeds(dict[int, tuple[int, ...]]):
    """For each number of rows, once it comes up: there may be many."""

    def __init__(self, at: Callable[[int], tuple[int, ...]]) -> None:
        self._at = at

    def __missing__(self, count: int) -> tuple[int, ...]:
        found = self[count] = self._at(count)
        return found


def _open(shapes: Shapes, rows: Rows) -> Shapes:
    def opened(name: str, shape: Sequence[int | str]) -> tuple[int | str, ...]:
        axis = rows.axes.get(name)
        if axis is None:
            return tuple(shape)
        size = "rows" if axis.unit == 1 else f"rows_{axis.unit}"
        return (*shape[: axis.index], size, *shape[axis.index + 1 :])

    return {name: opened(name, shape) for name, shape in shapes.items()}


def rows_in(tensor: Tensor, axis: Axis, rows: range) -> Tensor:
    if rows.step == 1:
        return tensor.narrow(axis.index, rows.start * axis.unit, len(rows) * axis.unit)
    apart = _apart(tensor, axis)
    picked = apart[(slice(None),) * axis.index + (slice(rows.start, None, rows.step),)]
    return picked.flatten(axis.index, axis.index + 1)


def joined(results: Sequence[Tensor], axis: Axis | None, rows: Sequence[range]) -> Tensor:
    """What is not divided is the same in each. By numpy, which does not wake up threads for it."""
    if axis is None or len(results) == 1:
        return results[0]
    if rows[0].step == 1:
        return torch.from_numpy(np.concatenate([part.numpy() for part in results], axis.index))
    shape = list(results[0].shape)
    shape[axis.index] = sum(map(len, rows)) * axis.unit
    whole = torch.empty(shape, dtype=results[0].dtype)
    apart = _apart(whole, axis).numpy()
    for result, mine in zip(results, rows, strict=True):
        place = (slice(None),) * axis.index + (slice(mine.start, None, mine.step),)
        apart[place] = _apart(result, axis).numpy()
    return whole


def _apart(tensor: Tensor, axis: Axis) -> Tensor:
    """With a dimension for the rows alone."""
    rest = tensor.shape[axis.index + 1 :]
    return tensor.reshape(*tensor.shape[: axis.index], -1, axis.unit, *rest)
