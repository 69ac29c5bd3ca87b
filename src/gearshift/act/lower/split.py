"""A region divided over a team: what each engine builds, takes and gives.

Must not know why it is divided so. `RowDivision` is on the hot path while it serves.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from gearshift.act.backends.protocol import Backend, Executable, Order
from gearshift.act.engines.protocol import Engine
from gearshift.act.engines.team import Part, TeamEngine
from gearshift.act.lower.anatomy import Anatomy, Undivided, anatomy
from gearshift.act.lower.channels import column_entries, column_parts, depth_parts
from gearshift.act.lower.independence import Axis
from gearshift.act.lower.part import Built, Join, PartBody, PieceDivision
from gearshift.act.lower.row_slices import RowLedger, joined, rows_in
from gearshift.act.lower.rows import rows_of
from gearshift.act.lower.shares import Shares, in_a_row
from gearshift.act.lower.spatial import spatial_parts
from gearshift.capture.program import Fragment
from gearshift.errors import CompileError
from gearshift.ir.topology import members
from gearshift.plan.plan import Region
from gearshift.plan.split import BLOCK, DEPTH, INTERLEAVED, ROWS, SPATIAL, Split

Prepared = tuple[list[tuple[PartBody, list[str]]], list[Join], list[int]]
"""Parts, how their results are put together, and how many of what is divided each part has."""


def why_undivided(fragment: Fragment, region: Region, num_engines: int) -> str | None:
    """On the example. Found out once for the same ops and split."""
    assert fragment.onnx is not None
    split = region.split
    assert split is not None
    known = fragment.onnx.proofs
    key = (*region.ops, f"{split} over {num_engines}")
    if key not in known:
        try:
            if split.how in (ROWS, INTERLEAVED):
                rows = rows_of(fragment, region.ops)
                if fragment.sizes.bind(fragment.example)[rows.symbol] < num_engines:
                    raise Undivided("the example has fewer rows than there are engines")
            else:
                _pieces(anatomy(fragment, region.ops, fragment.example), split, num_engines)
            known[key] = None
        except Undivided as reason:
            known[key] = str(reason)
        except (LookupError, ValueError) as odd:  # a node unlike those the rules were written for
            known[key] = f"not understood: {odd!r}"
    found: str | None = known[key]
    return found


def has_rows_for_all(fragment: Fragment, region: Region, leaves: Sequence[Any]) -> bool:
    """Whether there is a row for each engine of its team, if it is divided by rows."""
    if region.split is None or region.split.how not in (ROWS, INTERLEAVED):
        return True
    num_rows = fragment.sizes.bind(leaves)[rows_of(fragment, region.ops).symbol]
    return num_rows >= len(members(region.engine))


def build_divided(
    backend: Backend,
    order: Order,
    region: Region,
    team: TeamEngine,
    leaves: Sequence[Any],
    *,
    shared: bool,
) -> Executable:
    """`order` is for the whole region at these leaves; `shared`, if one build serves all."""
    assert region.split is not None
    try:
        if region.split.how in (ROWS, INTERLEAVED):
            return _by_rows(backend, order, region.split, team, leaves, shared=shared)
        return _in_pieces(backend, order, region.split, team, leaves)
    except Undivided as reason:
        raise CompileError(f"region {region.name} cannot be divided: {reason}") from None


def _by_rows(
    backend: Backend,
    order: Order,
    split: Split,
    team: TeamEngine,
    leaves: Sequence[Any],
    *,
    shared: bool,
) -> Executable:
    ledger = RowLedger(order, leaves)
    built = _build(backend, ledger.open_order, team, shared=shared)
    division = RowDivision(
        runs=[part.run for part in built],
        intos=[part.into for part in built],
        num_rows=ledger.num_rows,
        inputs=ledger.axes(built[0].inputs),
        outputs=ledger.axes(built[0].outputs),
        sizes=ledger.feeds(built[0].sizes),
        shares=Shares(len(team.engines), split.shares, team.cores_of_each),
        interleaved=split.how == INTERLEAVED,
    )
    held_bytes = sum({id(part): part.held_bytes for part in built}.values())
    return replace(built[0], run=division, into=None, sizes=(), held_bytes=held_bytes)


def _pieces(whole: Anatomy, split: Split, num_engines: int) -> Prepared:
    shares = split.shares_of(num_engines)
    if split.how == SPATIAL:
        return spatial_parts(whole, shares)
    if split.how == DEPTH:
        return depth_parts(whole, shares)
    return column_parts(whole, column_entries(whole, shares, split.block or BLOCK))


def _in_pieces(
    backend: Backend, order: Order, split: Split, team: TeamEngine, leaves: Sequence[Any]
) -> Executable:
    whole = anatomy(order.fragment, order.ops, leaves)
    bodies, joins, counts = _pieces(whole, split, len(team.engines))
    names = {onnx_name: name for name, onnx_name in whole.names.items()}
    inputs = tuple(names[name] for name in whole.inputs)
    parts, built = [], []
    for engine, count, (body, results) in zip(team.engines, counts, bodies, strict=True):
        cut = body.cut(results)
        built.append(_build_on(engine, backend, replace(order, part=cut)))
        takes = {names[name]: piece for name, piece in body.takes.items()}
        taken = [(inputs.index(name), takes.get(name)) for name in cut.inputs]
        run, into = built[-1].run, built[-1].into
        parts.append(Built(run=run, into=into, inputs=taken, share=count / sum(counts)))
    held_bytes = sum(part.held_bytes for part in built)
    forms = [(whole.shapes[o], getattr(torch, whole.dtypes[o])) for o in whole.outputs]
    division = PieceDivision(parts, joins, forms)
    return replace(built[0], run=division, into=None, inputs=inputs, held_bytes=held_bytes)


def _build(backend: Backend, order: Order, team: TeamEngine, *, shared: bool) -> list[Executable]:
    """For each engine."""
    if shared:
        return [_build_on(team.engines[0], backend, order)] * len(team.engines)
    return [_build_on(engine, backend, order) for engine in team.engines]


def _build_on(engine: Engine, backend: Backend, order: Order) -> Executable:
    mine = replace(order, engine=engine.spec)
    built: Executable = engine.call(lambda: backend.build(mine))
    return built


class RowDivision:
    """Each engine runs the whole region on its rows; results go where their rows belong: straight
    there, if what an engine builds can write to a given place, and rows lie there one after the
    other."""

    __slots__ = (
        *("_forms", "_inputs", "_interleaved", "_intos", "_num_rows", "_outputs", "_runs"),
        *("_sizes", "shares"),
    )

    def __init__(
        self,
        *,
        runs: Sequence[Callable[..., Sequence[Tensor]]],
        intos: Sequence[Callable[..., None] | None],
        num_rows: int,
        inputs: Sequence[Axis | None],
        outputs: Sequence[Axis | None],
        sizes: Mapping[int, tuple[int, ...]],
        shares: Shares,
        interleaved: bool,
    ) -> None:
        self._runs, self._num_rows, self._sizes = runs, num_rows, sizes
        self._inputs, self._outputs = inputs, outputs
        self.shares = shares
        self._interleaved = interleaved
        in_order = not interleaved and all(axis and axis.index == 0 for axis in outputs)
        self._intos = intos if in_order and None not in intos else None
        self._forms: list[tuple[torch.Size, torch.dtype]] | None = None
        """Of the whole results, once they were seen."""

    def __call__(self, *inputs: Tensor) -> Sequence[Tensor]:
        """Undivided."""
        return self._runs[0](*inputs, *self._sizes[self._num_rows])

    def take(self, inputs: Sequence[Tensor]) -> list[Part]:
        num_rows, num_engines = self._num_rows, len(self._runs)
        if self._interleaved:
            rows = [range(first, num_rows, num_engines) for first in range(num_engines)]
        else:
            rows = in_a_row(self.shares.of(num_rows))
        at_work = [(member, mine) for member, mine in enumerate(rows) if mine]
        if self._intos is not None and self._forms is not None:
            whole = [torch.empty(shape, dtype=dtype) for shape, dtype in self._forms]
            return [self._part_into(whole, inputs, member, mine) for member, mine in at_work]
        return [
            Part(
                member,
                self._runs[member],
                self._feeds(inputs, mine),
                len(mine) / num_rows,
                (mine, None),
            )
            for member, mine in at_work
        ]

    def _part_into(
        self, whole: list[Tensor], inputs: Sequence[Tensor], member: int, rows: range
    ) -> Part:
        assert self._intos is not None
        into = self._intos[member]
        assert into is not None
        pairs = zip(whole, self._outputs, strict=True)
        places = [tensor if axis is None else rows_in(tensor, axis, rows) for tensor, axis in pairs]
        share = len(rows) / self._num_rows
        return Part(member, into, [places, *self._feeds(inputs, rows)], share, (rows, whole))

    def _feeds(self, inputs: Sequence[Tensor], rows: range) -> list[Any]:
        pairs = zip(inputs, self._inputs, strict=True)
        taken = [t if axis is None else rows_in(t, axis, rows) for t, axis in pairs]
        return [*taken, *self._sizes[len(rows)]]

    def join(
        self, parts: Sequence[Part], results: Sequence[Sequence[Tensor]], took_s: Sequence[float]
    ) -> list[Tensor]:
        self._learn(parts, took_s)
        whole: list[Tensor] | None = parts[0].about[1]
        if whole is not None:
            return whole
        rows = [part.about[0] for part in parts]
        whole = [
            joined([result[index] for result in results], axis, rows)
            for index, axis in enumerate(self._outputs)
        ]
        self._forms = [(tensor.shape, tensor.dtype) for tensor in whole]
        return whole

    def _learn(self, parts: Sequence[Part], took_s: Sequence[float]) -> None:
        for part, seconds in zip(parts, took_s, strict=True):
            self.shares.note(part.member, len(part.about[0]), seconds)
        at_work = {part.member for part in parts}
        for member in range(len(self._runs)):
            if member not in at_work:
                self.shares.left_out(member)
