"""A recurrent region as its plan unrolls it: on one engine, over a team layer by layer or direction
by direction, or by rows.

Must not know why. `Unrolled` and what it calls are on the hot path.
"""

import weakref
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from gearshift.act.backends.protocol import Executable, Order
from gearshift.act.engines.protocol import Engine
from gearshift.act.engines.team import Rounds, RoundsJob, TeamEngine
from gearshift.act.labels import size_number
from gearshift.act.lower.shares import Shares
from gearshift.act.recurrent.cell import Cell, Cells, cells_of
from gearshift.act.recurrent.choice import fastest
from gearshift.act.recurrent.course import Asked, Course
from gearshift.act.recurrent.kernels import Kernel, State
from gearshift.act.recurrent.rows import Rows, sorted_rows
from gearshift.act.recurrent.runner import Profile, Runner
from gearshift.act.recurrent.ways import ByDirections, ByRows, OnOne, Wavefront
from gearshift.act.steps import Unfit
from gearshift.errors import CompileError
from gearshift.ir.topology import CALLER, members
from gearshift.plan.footprint import Footprint, layer_groups
from gearshift.plan.plan import Region
from gearshift.plan.unroll import Steps, Unroll

EVERY = range(2)
"""Directions."""
SOME = (64, 8)
"""Steps and rows, where they are not known."""


def build_unrolled(order: Order, region: Region, engine: Engine) -> Executable:
    """Kernels are chosen for the shapes of the order, or for some; they run at any."""
    cells = _cells(order, region)
    assert region.unroll is not None
    build = _Build(
        order, cells, region, region.unroll, *_size(order, cells, order.fragment.example)
    )
    work: Any
    if not isinstance(engine, TeamEngine):
        work = OnOne(build.runner(engine), region.rewrite.threads)
    elif region.split is not None:
        shares = Shares(len(engine.engines), region.split.shares, engine.cores_of_each)
        work = ByRows([build.runner(one) for one in engine.engines], shares)
    elif cells.stack.num_directions > 1:
        work = ByDirections(build.by_direction(engine.engines))
    else:
        work = Wavefront(build.groups(engine.engines))
    together = isinstance(engine, TeamEngine)
    run = UnrolledTogether(cells, work, engine) if together else Unrolled(cells, work, engine)
    return Executable(
        run=run,
        inputs=cells.cut.inputs,
        sizes=cells.cut.sizes,
        outputs=cells.cut.outputs,
        held_bytes=held_bytes(order, region, order.fragment.example),
        by_torch=True,
        threads=tuple(number for runner in work.runners for number in runner.threads),
    )


def _size(order: Order, cells: Cells, leaves: Sequence[Any]) -> tuple[int, int]:
    """Steps and rows of calls with these leaves, where the order does not tell."""
    name, fragment = cells.cut.inputs[cells.input], order.fragment
    shape = fragment.graph.values[name].shape if order.shapes is None else order.shapes[name]
    bound = fragment.sizes.bind(leaves)
    try:
        one, other, _ = (size_number(size, bound) for size in shape)
    except ValueError:
        return SOME
    return (other, one) if cells.stack.batch_first else (one, other)


def held_bytes(order: Order, region: Region, leaves: Sequence[Any]) -> int:
    """Kernels keep weights in a layout of their own; over a team by rows, each engine does. And
    what calls of these sizes work on: all steps at once may be more than there is room for."""
    cells = _cells(order, region)
    engines = len(members(region.engine))
    by_rows = region.split is not None
    steps, rows = _size(order, cells, leaves)
    footprint = Footprint(
        stack=cells.stack,
        num_rows=rows,
        num_steps=steps,
        num_engines=1 if by_rows else engines,
    )
    assert region.unroll is not None
    read_bytes = steps * rows * cells.stack.input_size * cells.stack.item_bytes
    worked_on = footprint.held_bytes(region.unroll.layers) + read_bytes
    of_parts = read_bytes if by_rows else 0  # each engine has its rows next to each other
    return order.weight_bytes * (engines if by_rows else 1) + worked_on + of_parts


def _cells(order: Order, region: Region) -> Cells:
    cells = cells_of(order.fragment, region.name)
    if cells is None or region.unroll is None:
        raise CompileError(f"region {region.name} is not one recurrent op with weights of its own")
    return cells


@dataclass(frozen=True, slots=True)
class _Build:
    order: Order
    cells: Cells
    region: Region
    unroll: Unroll
    num_steps: int
    num_rows: int

    def runner(self, engine: Engine) -> Runner:
        """All layers on one engine."""
        return self._runner(engine, 0, len(self.cells.layers))

    def by_direction(self, engines: Sequence[Engine]) -> list[Runner]:
        """All layers on each engine, but of each layer one direction."""
        every, count = len(self.cells.layers), len(engines)
        return [
            self._runner(engine, 0, every, range(member, self.cells.stack.num_directions, count))
            for member, engine in enumerate(engines)
        ]

    def groups(self, engines: Sequence[Engine]) -> list[Runner]:
        """Consecutive layers to each, about as much work for all."""
        groups = layer_groups(self.cells.stack, len(engines))
        return [
            self._runner(engine, group.start, group.stop)
            for engine, group in zip(engines, groups, strict=True)
            if group
        ]

    def _runner(self, engine: Engine, first: int, last: int, directions: range = EVERY) -> Runner:
        order = replace(self.order, engine=engine.spec)
        profile: Profile = engine.call(lambda: self._profile(order, first, last, directions))
        return Runner(profile, range(first, last))

    def _profile(self, order: Order, first: int, last: int, directions: range) -> Profile:
        """Of layers and directions on other engines, nothing."""
        built = []
        for layer, steps in enumerate(self.unroll.layers):
            cells = self.cells.layers[layer] if first <= layer < last else ()
            kernels = [
                self._kernel(cell, steps, order) if direction in directions else elsewhere
                for direction, cell in enumerate(cells)
            ]
            built.append((steps, tuple(kernels)))
        return Profile(layers=tuple(built), way=self.region)

    def _kernel(self, cell: Cell, steps: Steps, order: Order) -> Kernel:
        return fastest(cell, steps, order, self.num_steps, self.num_rows)


def elsewhere(x: Tensor, state: State) -> tuple[Tensor, State]:
    """In place of a kernel that another engine has."""
    raise AssertionError("another engine has this direction")


def _asked(cells: Cells, inputs: Sequence[Tensor]) -> Asked:
    x = inputs[cells.input]
    given = [inputs[index] for index in cells.states]
    order = None
    lengths = None if cells.lengths is None else inputs[cells.lengths].tolist()
    places = None if lengths is None else sorted_rows(lengths)
    if places is not None:
        order = torch.tensor(places)
        x = x.index_select(1, order)
        given = [part.index_select(1, order) for part in given]
    x = x.transpose(0, 1).contiguous() if cells.stack.batch_first else x.contiguous()
    each = cells.stack.num_directions
    places_of = [range(i * each, (i + 1) * each) for i in range(cells.stack.num_layers)]
    states = tuple(tuple(tuple(g[i : i + 1] for g in given) for i in of) for of in places_of)
    if len(x) == 0 or x.shape[1] == 0:  # the model itself says what that is
        raise Unfit
    uniform = Rows(len(x), x.shape[1])
    rows = uniform if lengths is None else Rows.ragged(sorted(lengths, reverse=True))
    return Asked(x, states, rows, order)


class Unrolled:
    """The region's inputs to its outputs, around one way to go through the layers."""

    __slots__ = ("__weakref__", "_before", "_cells", "_next", "engine", "work")

    def __init__(self, cells: Cells, work: Any, engine: Engine) -> None:
        self._cells, self.work, self.engine = cells, work, engine
        self._next: Callable[[], Unrolled | None] = _nobody
        self._before: weakref.WeakSet[Unrolled] = weakref.WeakSet()
        """Those whose calls go on by it."""

    def __call__(self, *inputs: Tensor) -> Sequence[Tensor]:
        """On the engine it is called on. Where gradients are on, kernels would prepare for them;
        what is made in inference mode others could not write to."""
        with torch.inference_mode(False), torch.no_grad():
            course = Course(self._cells.layers, _asked(self._cells, inputs))
            self.work(course, self.is_to_leave)
            return self._finished(course, self.engine.spec.name)

    @property
    def runners(self) -> list[Runner]:
        """For each engine, what is done there."""
        found: list[Runner] = self.work.runners
        return found

    @property
    def shares(self) -> Shares | None:
        """Of rows, if those are shared out."""
        found: Shares | None = getattr(self.work, "shares", None)
        return found

    def leave_to(self, following: "Unrolled | None") -> None:
        """Calls under way are to go on by another way from their next chunk on, those too that were
        to go on by this one; until that is gone or it is this one's turn again."""
        self._next = _nobody if following is None else weakref.ref(following)
        if following is not None:
            following._before.add(self)
            for other in [other for other in self._before if other is not following]:
                other.leave_to(following)
        self._before.clear()

    def is_to_leave(self) -> bool:
        return self._next() is not None

    def go_on(self, course: Course, here: str) -> None:
        """With a call that another way has begun, from an engine."""
        if self.engine.spec.name == here:
            self.work(course, self.is_to_leave)
        else:
            self.engine.start(self.work, (course, self.is_to_leave)).result()

    def _finished(self, course: Course, here: str) -> list[Tensor]:
        """By whatever ways come into force until it is; rows and sequence as the op gives them."""
        way = self
        while not course.done:
            way = way._next() or way
            way.go_on(course, here)
        return self._told(course)

    def _told(self, course: Course) -> list[Tensor]:
        out, finals, order = course.out, course.finals, course.asked.order
        parts = range(len(finals[0][0]))
        states = [torch.cat([s[i] for layer in finals for s in layer]) for i in parts]
        if order is not None:
            back = torch.argsort(order)
            out, states = out.index_select(1, back), [s.index_select(1, back) for s in states]
        if self._cells.stack.batch_first:
            out = out.transpose(0, 1)
        results = [out.contiguous(), *states]
        return [results[index] for index in self._cells.outputs]


class UnrolledTogether(Unrolled):
    """Over a team."""

    __slots__ = ()

    def rounds(self, inputs: Sequence[Tensor]) -> Rounds:
        course = Course(self._cells.layers, _asked(self._cells, inputs))
        yield from self.work.rounds(course, self.is_to_leave)
        with torch.inference_mode(False), torch.no_grad():
            return self._finished(course, CALLER)

    def go_on(self, course: Course, here: str) -> None:
        assert isinstance(self.engine, TeamEngine)
        steering = self.work.rounds(course, self.is_to_leave)
        RoundsJob(steering, self.engine.engines).result()


def _nobody() -> None:
    return None
