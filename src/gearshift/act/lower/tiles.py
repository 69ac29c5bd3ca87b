"""A region run a few rows at a time, so that what it makes of them stays in the cache.

Must not know why. `Tiled` is on the hot path while it serves.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import torch
from torch import Tensor

from gearshift.act.backends.protocol import Backend, Executable, Order
from gearshift.act.engines.protocol import Engine
from gearshift.act.labels import size_number
from gearshift.act.lower.anatomy import Undivided
from gearshift.act.lower.independence import Axis
from gearshift.act.lower.row_slices import RowLedger, rows_in
from gearshift.act.lower.rows import rows_of
from gearshift.capture.program import Fragment
from gearshift.errors import CompileError
from gearshift.ir.work import made_bytes
from gearshift.plan.plan import Region

TILE_BYTES = 1 << 18
"""Of all that the region makes of a tile's rows: half of a usual second-level cache."""
LEAST_TILES = 2
SOME = 8
"""Rows of a tile come in multiples of this, so that vectors are full."""


def why_untiled(fragment: Fragment, region: Region) -> str | None:
    """On the example."""
    try:
        num_rows = fragment.sizes.bind(fragment.example)[rows_of(fragment, region.ops).symbol]
        tile_rows(fragment, region.ops, fragment.example, num_rows)
    except Undivided as reason:
        return str(reason)
    except (LookupError, ValueError) as odd:  # a node or size unlike those the rules know
        return f"not understood: {odd!r}"
    return None


def tile_rows(fragment: Fragment, ops: Sequence[str], leaves: Sequence[Any], num_rows: int) -> int:
    """How many at a time."""
    size = partial(size_number, bound=fragment.sizes.bind(leaves))
    row_bytes = made_bytes(fragment.graph, ops, size) / max(1, num_rows)
    fitting = int(TILE_BYTES / max(1.0, row_bytes))
    rows = max(1, fitting // SOME * SOME if fitting >= SOME else fitting)
    if num_rows < LEAST_TILES * rows:
        raise Undivided("all of its rows fit into the cache as they are")
    return rows


def build_tiled(
    backend: Backend, order: Order, engine: Engine, leaves: Sequence[Any]
) -> Executable:
    """`order` is for the whole region at these leaves."""
    try:
        ledger = RowLedger(order, leaves)
        rows = tile_rows(order.fragment, order.ops, leaves, ledger.num_rows)
    except Undivided as reason:
        raise CompileError(f"region {order.ops[0]} has no tiles: {reason}") from None
    built: Executable = engine.call(lambda: backend.build(ledger.open_order))
    tiled = Tiled(
        run=built.run,
        into=built.into,
        tiles=[range(i, min(i + rows, ledger.num_rows)) for i in range(0, ledger.num_rows, rows)],
        inputs=ledger.axes(built.inputs),
        outputs=ledger.axes(built.outputs),
        sizes=ledger.feeds(built.sizes),
    )
    return replace(built, run=tiled, into=None, sizes=())


class Tiled:
    """Tile after tile; results are put together as they come."""

    __slots__ = ("_inputs", "_into", "_outputs", "_run", "_sizes", "_tiles")

    def __init__(
        self,
        *,
        run: Callable[..., Sequence[Tensor]],
        into: Callable[..., None] | None,
        tiles: Sequence[range],
        inputs: Sequence[Axis | None],
        outputs: Sequence[Axis | None],
        sizes: Mapping[int, tuple[int, ...]],
    ) -> None:
        in_order = all(axis is not None and axis.index == 0 for axis in outputs)
        self._run, self._into = run, into if in_order else None
        self._tiles, self._sizes = tiles, sizes
        self._inputs, self._outputs = inputs, outputs

    def __call__(self, *inputs: Tensor) -> Sequence[Tensor]:
        first, *others = self._tiles
        results = self._run(*self._feeds(inputs, first))
        whole = [
            result if axis is None else self._around(result, axis, first)
            for result, axis in zip(results, self._outputs, strict=True)
        ]
        for rows in others:
            places = [
                None if axis is None else rows_in(tensor, axis, rows)
                for tensor, axis in zip(whole, self._outputs, strict=True)
            ]
            if self._into is not None:
                self._into(places, *self._feeds(inputs, rows))
                continue
            for place, result in zip(places, self._run(*self._feeds(inputs, rows)), strict=True):
                if place is not None:
                    place.copy_(result)
        return whole

    def _feeds(self, inputs: Sequence[Tensor], rows: range) -> list[Any]:
        pairs = zip(inputs, self._inputs, strict=True)
        mine = [t if axis is None else rows_in(t, axis, rows) for t, axis in pairs]
        return [*mine, *self._sizes[len(rows)]]

    def _around(self, result: Tensor, axis: Axis, rows: range) -> Tensor:
        """Room for all rows, with the first ones in it."""
        shape = list(result.shape)
        shape[axis.index] = self._tiles[-1].stop * axis.unit
        whole = torch.empty(shape, dtype=result.dtype)
        rows_in(whole, axis, rows).copy_(result)
        return whole
