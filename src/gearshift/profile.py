"""Measures regions side by side, taking turns, so that noise hits all alike.

A recipe: uses the runtime's parts; decides nothing.
"""

import logging
import statistics
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from torch import Tensor

from gearshift.act.compile import build_variant
from gearshift.act.labels import size_number
from gearshift.act.measure import Ready, make_ready, measurement, run_on, take_turns
from gearshift.act.verify import feeds, known_values
from gearshift.capture.program import Fragment
from gearshift.errors import GearshiftError
from gearshift.ir import kinds
from gearshift.ir.graph import Graph
from gearshift.ir.hierarchy import Branch, hierarchy
from gearshift.ir.measurement import Measurement, OpReading
from gearshift.ir.region import boundary
from gearshift.ir.roofline import Roofline
from gearshift.ir.work import Size, Work, work_of
from gearshift.observe.hal import Bound, model_traffic
from gearshift.plan import Plan, Region, Rewrite
from gearshift.plan.rewrite import why_unfit
from gearshift.predict.roofline import least_s
from gearshift.runtime import Runtime
from gearshift.view.profiled import HotOp, Line
from gearshift.view.roofline import Roof

log = logging.getLogger("gearshift")
Progress = Callable[[str], None]


def profile_regions(
    runtime: Runtime,
    plan: Plan,
    rewrites: Sequence[Rewrite],
    *,
    seconds: float,
    progress: Progress,
) -> Iterator[Measurement]:
    """Each region of the plan, on its engine, under each setting that can run it."""
    runnable = runtime.space.runnable
    for fragment in runtime.program.fragments:
        mine = [region for region in plan.regions if region.name in fragment.graph.position]
        values = known_values(fragment, mine, fragment.example)
        for region in mine:
            progress(f"region {region.name}")
            fitting = [r for r in rewrites if frozenset(region.ops) <= runnable[r.backend]]
            yield from _profile_region(runtime, fragment, region, fitting, values, seconds)


def profile_ops(runtime: Runtime, *, seconds: float) -> dict[str, OpReading]:
    """Each op as PyTorch runs it, one after the other through the whole model, again and again: so
    that each finds the caches as the one before it left them."""
    found: dict[str, OpReading] = {}
    for fragment in runtime.program.fragments:
        ops = [Region(ops=(op.name,)) for op in fragment.graph.ops]
        values = known_values(fragment, ops, fragment.example)
        calls: dict[str, Callable[[], Any]] = {}
        for op in ops:
            variant = build_variant(fragment, (op,), fragment.example, runtime.open_engine)
            (executable,), (engine,) = variant.executables, variant.engines
            inputs, _ = feeds(executable, values)
            calls[op.name] = partial(run_on, engine, executable, inputs)
        for name, latencies in take_turns(calls, seconds).items():
            found[name] = _reading(fragment, name, values, statistics.median(latencies))
    return found


def _reading(fragment: Fragment, op: str, values: Mapping[str, Any], seconds: float) -> OpReading:
    edge = boundary(fragment.graph, (op,))
    transferred = {name: values[name] for name in (*edge.inputs, *edge.outputs)}
    touched = {**transferred, **{name: fragment.weights[name] for name in edge.weights}}
    moved = {name: tensor.nbytes for name, tensor in touched.items()}
    node = fragment.graph.by_name[op]
    if node.kind == kinds.LOOKUP:
        table, found_bytes = node.operands[0], sum(moved[name] for name in edge.outputs)
        moved[table] = min(moved[table], found_bytes)
    return OpReading(
        op=op,
        seconds=seconds,
        moved_bytes=sum(moved.values()),
        set_bytes=_distinct_bytes(touched, moved),
        transfer_bytes=sum(moved[name] for name in transferred),
        contiguous=all(values[name].is_contiguous() for name in edge.inputs),
    )


def _distinct_bytes(touched: Mapping[str, Tensor], moved: Mapping[str, int]) -> int:
    """No more of any piece of memory than it has."""
    held: dict[int, int] = {}
    asked: dict[int, int] = {}
    for name, tensor in touched.items():
        memory = tensor.untyped_storage()
        where = memory.data_ptr()
        held[where] = memory.nbytes()
        asked[where] = asked.get(where, 0) + moved[name]
    return sum(min(number, held[where]) for where, number in asked.items())


@dataclass(frozen=True, slots=True, kw_only=True)
class Spot:
    """A branch of the hierarchy against what the machine can do."""

    level: int
    branch: Branch
    work: Work
    """With the time that its ops took as PyTorch runs them."""
    bound: Bound | None
    """None where its work cannot be counted."""
    of_roof: float | None
    """The share of the speed that the roofline allows."""


def profile_branches(
    runtime: Runtime, readings: Mapping[str, OpReading], roofline: Roofline, *, depth: int
) -> list[Spot]:
    """In run order, so many levels deep."""
    found = []
    for fragment in runtime.program.fragments:
        size = partial(size_number, bound=fragment.sizes.bind(fragment.example))
        for root in hierarchy(fragment.graph):
            for level, branch in root.walk(depth):
                seconds = sum(readings[op].seconds for op in branch.ops)
                found.append(_spot(fragment, level, branch, seconds, size, roofline))
    return found


def _spot(
    fragment: Fragment, level: int, branch: Branch, seconds: float, size: Size, roofline: Roofline
) -> Spot:
    try:
        work = replace(work_of(fragment.graph, branch.ops, size), seconds=seconds)
    except ValueError:  # a size that is not known before the call
        work = Work(flops=0.0, moved_bytes=0.0, set_bytes=0.0, seconds=seconds)
    roof_s = least_s(work, roofline, roofline.num_threads) if work.known else None
    return Spot(
        level=level,
        branch=branch,
        work=work,
        bound=model_traffic(work, roofline).bound,
        of_roof=None if roof_s is None else roof_s / seconds,
    )


def lines_of(spots: Sequence[Spot], rows: Sequence[Measurement]) -> list[Line]:
    """As people read them."""
    whole_s = sum(spot.work.seconds for spot in spots if spot.level == 0)
    found: dict[tuple[str, ...], dict[str, float]] = {}
    for row in rows:
        found.setdefault(row.ops, {})[row.rewrite] = row.latency_s
    return [
        Line(
            level=spot.level,
            name=spot.branch.name,
            num_ops=len(spot.branch.ops),
            seconds=spot.work.seconds,
            share=spot.work.seconds / whole_s,
            flops=spot.work.flops,
            moved_bytes=spot.work.moved_bytes,
            intensity=spot.work.flops / spot.work.moved_bytes if spot.work.known else None,
            bound=spot.bound,
            of_roof=spot.of_roof,
            rewrites_s=found.get(spot.branch.ops, {}),
        )
        for spot in spots
    ]


def hot_ops(graph: Graph, readings: Mapping[str, OpReading]) -> list[HotOp]:
    whole_s = sum(reading.seconds for reading in readings.values())
    return [
        HotOp(
            name=name,
            kind=graph.by_name[name].kind,
            seconds=reading.seconds,
            share=reading.seconds / whole_s,
            moved_bytes=reading.moved_bytes,
            set_bytes=reading.set_bytes,
            transfer_bytes=reading.transfer_bytes,
            contiguous=reading.contiguous,
        )
        for name, reading in readings.items()
    ]


def roof_of(roofline: Roofline) -> Roof:
    levels = ("l1", "l2", "l3", "dram")
    rates = {level.upper(): getattr(roofline, f"{level}_bytes_s") for level in levels}
    return Roof(peak_flops_s=roofline.peak_flops_s, bytes_s=rates)


def _profile_region(
    runtime: Runtime,
    fragment: Fragment,
    region: Region,
    rewrites: Sequence[Rewrite],
    values: dict[str, Any],
    seconds: float,
) -> Iterator[Measurement]:
    built: dict[str, tuple[Region, Ready]] = {}
    for rewrite in rewrites:
        as_set = Region(ops=region.ops, engine=region.engine, rewrite=rewrite)
        reason = why_unfit(as_set, runtime.space) if rewrite.option else None
        if reason is not None:
            log.info("region %s by %s: %s", region.name, rewrite, reason)
            continue
        try:
            ready = make_ready(fragment, as_set, values, runtime.open_engine, runtime.tolerance)
        except GearshiftError as refusal:
            log.warning("region %s by %s: refused: %s", region.name, rewrite, str(refusal))
            continue
        built[str(rewrite)] = (as_set, ready)
    calls = {name: ready.call for name, (_, ready) in built.items()}
    for name, latencies in take_turns(calls, seconds * len(calls)).items():
        yield measurement(fragment, *built[name], latencies)
