"""A plan's regions built for one signature, or for any: executables, and the steps that join them.

Must not know when or why something is built.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Any

from gearshift.act.backends import BACKENDS, Executable, Order
from gearshift.act.engines import Engine, TeamEngine
from gearshift.act.indices import index_checks, range_checks
from gearshift.act.lower.unroll import build_unrolled
from gearshift.act.lower.unroll import held_bytes as unrolled_bytes
from gearshift.act.steps import Steps, bind, guarding
from gearshift.capture.program import Expression, Fragment, Ref, Shapes, SizeValues, size_number
from gearshift.errors import CompileError, GearshiftError
from gearshift.ir.region import boundary, run_order
from gearshift.ir.topology import CALLER, members
from gearshift.plan.plan import Plan, Region, on_caller
from gearshift.plan.rewrite import BUFFERS, EAGER, TILES, Rewrite
from gearshift.plan.split import COLUMNS, DEPTH, INTERLEAVED, ROWS
from gearshift.plan.unroll import Unroll

OpenEngine = Callable[[str], Engine]
CHUNK = 64
"""Steps of a sequence of any length that are taken at a time."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Variant:
    """A fragment's part of a plan, built. `signature` is None if it runs at any shape."""

    fragment: Fragment
    regions: tuple[Region, ...]
    """In run order."""
    executables: tuple[Executable, ...]
    engines: tuple[Engine, ...]
    signature: tuple[tuple[int, ...], ...] | None
    finite_only: bool = False
    """Whether it treats NaN or Inf otherwise than the model does."""

    @property
    def held_bytes(self) -> int:
        return sum(built.held_bytes for built in self.executables)

    def steps(self, leaves: Sequence[Any], others: Callable[[], int] = int) -> Steps:
        """The flat form, with the sizes of this call filled in; `others` tells how many want a core
        beside it."""
        layout = _Layout(self.fragment, leaves)
        last_read: dict[str, int] = {}
        for index, built in enumerate(self.executables):
            last_read.update(dict.fromkeys(built.inputs, index))
        kept = {*(o.name for o in self.fragment.outputs if isinstance(o, Ref))}
        kept |= {value.name for value in self.fragment.graph.inputs}
        last_read = {name: index for name, index in last_read.items() if name not in kept}
        pairs = list(zip(self.executables, self.engines, strict=True))
        elsewhere = {i: layout.place() for i, e in enumerate(self.engines) if e.spec.name != CALLER}
        run, regions = bind(pairs, layout.home, last_read, elsewhere, others)
        indices = index_checks(self.fragment, self._answered(), layout.home, leaves)
        ranges = range_checks(self.fragment, self._exact_below(), layout.home)
        guard = guarding(self._floats(leaves), (*indices, *ranges))
        if guard is not None:
            run, regions = (guard, *run), (0, *regions)
        return Steps(
            run=run,
            regions=regions,
            rest=tuple(layout.rest),
            outputs=layout.outputs,
            elsewhere=elsewhere,
        )

    def _floats(self, leaves: Sequence[Any]) -> tuple[int, ...]:
        if not self.finite_only:
            return ()
        return tuple(i for i in self.fragment.inputs if leaves[i].is_floating_point())

    def _exact_below(self) -> dict[str, int]:
        pairs = zip(self.regions, self.executables, strict=True)
        return {
            op: built.exact_below
            for region, built in pairs
            for op in region.ops
            if built.exact_below is not None
        }

    def _answered(self) -> frozenset[str]:
        """Ops run by a backend that may answer what the model refuses."""
        regions = [region for region in self.regions if region.rewrite.backend != EAGER.backend]
        return frozenset(op for region in regions for op in region.ops)


class _Layout:
    """Where each value lives in a call's list: leaves, then sizes, values, and constant outputs."""

    def __init__(self, fragment: Fragment, leaves: Sequence[Any]) -> None:
        graph, num_leaves = fragment.graph, len(leaves)
        bound = fragment.sizes.bind(leaves)
        sizes = fragment.size_numbers(bound)
        pairs = zip(graph.inputs, fragment.inputs, strict=True)
        self.home = {value.name: leaf for value, leaf in pairs}
        self.rest: list[Any] = []
        self._num_leaves = num_leaves
        for name in (*sizes, *(value.name for value in graph.results)):
            self.home[name] = self.place(sizes.get(name))
        outputs = []
        for output in fragment.outputs:
            if isinstance(output, Ref) and output.name in self.home:
                outputs.append(self.home[output.name])
            else:
                outputs.append(self.place(_constant_output(fragment, output, bound)))
        self.outputs = tuple(outputs)

    def place(self, value: Any = None) -> int:
        self.rest.append(value)
        return self._num_leaves + len(self.rest) - 1


def _constant_output(fragment: Fragment, output: Any, bound: Mapping[str, int]) -> Any:
    if isinstance(output, Ref):
        if output.name in fragment.slots:
            holder, key = fragment.slots[output.name]
            return holder[key]
        return fragment.constants[output.name]
    if isinstance(output, Expression):
        return size_number(output.text, bound)
    return output


def fragment_regions(plan: Plan, fragment: Fragment) -> tuple[Region, ...]:
    """The plan's regions of this fragment, in an order in which they can run."""
    ops = fragment.graph.position
    mine = [region for region in plan.regions if region.name in ops]
    order = run_order(fragment.graph, [region.ops for region in mine])
    assert order is not None, "a legal plan has an order"
    return tuple(mine[index] for index in order)


def build_variant(
    fragment: Fragment,
    regions: tuple[Region, ...],
    leaves: Sequence[Any] | None,
    open_engine: OpenEngine,
    ready: Mapping[Region, Executable] = MappingProxyType({}),
) -> Variant:
    """Built for the shapes of these leaves, or for any shape if there are none."""
    shapes, sizes = (None, None) if leaves is None else concrete(fragment, regions, leaves)
    signature = None if leaves is None else _signature(fragment, leaves)
    executables, engines = [], []
    for region in regions:
        engine = open_engine(region.engine)
        built = ready.get(region)
        if built is None:
            built = _build(fragment, region, engine, shapes, sizes, leaves)
        executables.append(built)
        engines.append(engine)
    return Variant(
        fragment=fragment,
        regions=regions,
        executables=tuple(executables),
        engines=tuple(engines),
        signature=signature,
    )


def _signature(fragment: Fragment, leaves: Sequence[Any]) -> tuple[tuple[int, ...], ...]:
    return tuple(tuple(leaves[i].shape) for i in fragment.inputs)


def concrete(
    fragment: Fragment, regions: Sequence[Region], leaves: Sequence[Any]
) -> tuple[Shapes, SizeValues]:
    """The shapes at every boundary, read off a plain run; sizes by their expressions."""
    names = boundary_values(fragment, regions)
    values = fragment.reference(leaves, names, fragment.weights)
    sizes = fragment.size_numbers(fragment.sizes.bind(leaves))
    return {name: tuple(value.shape) for name, value in values.items()}, sizes


def boundary_values(fragment: Fragment, regions: Sequence[Region]) -> list[str]:
    names: dict[str, None] = {}
    for region in regions:
        edge = boundary(fragment.graph, region.ops)
        names.update(dict.fromkeys((*edge.inputs, *edge.outputs)))
    return list(names)


def reusable(
    fragment: Fragment, leaves: Sequence[Any], reuse: Sequence[Variant]
) -> dict[Region, Executable]:
    """Regions already built alike, for the same weights and shapes."""
    signature = _signature(fragment, leaves)
    ready: dict[Region, Executable] = {}
    for variant in reuse:
        if variant.fragment is fragment and variant.signature == signature:
            ready.update(zip(variant.regions, variant.executables, strict=True))
    return ready


def _build(
    fragment: Fragment,
    region: Region,
    engine: Engine,
    shapes: Shapes | None,
    sizes: SizeValues | None,
    leaves: Sequence[Any] | None,
) -> Executable:
    backend, order = order_for(fragment, region, engine)
    order = replace(order, shapes=shapes, sizes=sizes)
    try:
        if region.unroll is not None:
            return build_unrolled(order, region, engine)
        if region.split is not None:
            return _build_divided(backend, order, region, engine, leaves)
        if region.rewrite.option == TILES:
            return _build_tiled(backend, order, engine, leaves)
        built: Executable = engine.call(lambda: backend.build(order))
    except GearshiftError:
        raise
    except Exception as error:
        raise CompileError(
            f"region {region.name}: {region.setting} on {region.engine}:"
            f" {type(error).__name__}: {' '.join(str(error).split())[:300]}"
        ) from error
    return built


def _build_divided(
    backend: Any, order: Order, region: Region, engine: Engine, leaves: Sequence[Any] | None
) -> Executable:
    from gearshift.act.lower.split import build_divided  # needs what reads ONNX

    assert isinstance(engine, TeamEngine)
    assert leaves is not None, "at any shape a region runs undivided"
    shared = is_shared(backend, region)
    return build_divided(backend, order, region, engine, leaves, shared=shared)


def _build_tiled(
    backend: Any, order: Order, engine: Engine, leaves: Sequence[Any] | None
) -> Executable:
    from gearshift.act.lower.tiles import build_tiled  # needs what reads ONNX

    assert leaves is not None, "at any shape a region runs as a whole"
    return build_tiled(backend, order, engine, leaves)


def order_for(fragment: Fragment, region: Region, engine: Engine) -> tuple[Any, Order]:
    order = Order(
        fragment=fragment,
        ops=region.ops,
        rewrite=region.rewrite,
        engine=engine.spec,
        device=engine.device,
    )
    return BACKENDS[region.rewrite.backend], order


def held_bytes(
    fragment: Fragment, region: Region, engine: Engine, leaves: Sequence[Any] | None = None
) -> int:
    """What the built region will hold beyond the model's own weights, for calls like this one; or
    like the example."""
    backend, order = order_for(fragment, region, engine)
    if region.unroll is not None:
        return unrolled_bytes(order, region, leaves or fragment.example)
    held: int = backend.held_bytes(order)
    return held if is_shared(backend, region) else held * len(members(region.engine))


def is_shared(backend: Any, region: Region) -> bool:
    """Whether the engines of a team hold what is built once: they share one build, or have each a
    part of the weights."""
    how = None if region.split is None else region.split.how
    if how in (ROWS, INTERLEAVED):
        return backend.any_thread and region.rewrite.threads == 1
    return how in (COLUMNS, DEPTH)


def regions_at(
    fragment: Fragment, regions: tuple[Region, ...], leaves: Sequence[Any]
) -> tuple[Region, ...]:
    """The same regions; what is divided by rows runs undivided where there are fewer rows than
    engines."""
    if all(region.split is None or region.unroll is not None for region in regions):
        return regions
    from gearshift.act.lower.split import has_rows_for_all  # needs what reads ONNX

    return tuple(
        r if r.unroll is not None or has_rows_for_all(fragment, r, leaves) else on_caller(r)
        for r in regions
    )


def any_shape_regions(regions: tuple[Region, ...]) -> tuple[Region, ...]:
    """The same regions where a backend that must know the shapes is replaced by eager, what is
    divided runs undivided on the calling thread and as many more as the team has, options that must
    know the shapes are left out, and sequences, however long, are not taken all at once."""
    return tuple(_in_chunks(r) if r.unroll is not None else _any_shape_region(r) for r in regions)


def _in_chunks(region: Region) -> Region:
    assert region.unroll is not None
    layers = tuple(replace(s, then=s.then or CHUNK) for s in region.unroll.layers)
    return replace(region, unroll=Unroll(layers=layers))


def _any_shape_region(region: Region) -> Region:
    anywhere = replace(region, rewrite=_at_any_shape(region.rewrite))
    return anywhere if region.split is None else on_caller(anywhere)


def _at_any_shape(rewrite: Rewrite) -> Rewrite:
    if not BACKENDS[rewrite.backend].any_shape:
        return EAGER
    return replace(rewrite, option="") if rewrite.option in (BUFFERS, TILES) else rewrite
