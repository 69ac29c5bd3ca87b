"""What a runtime went through, of its regions: the plan in force, how the model was cut over time,
which settings its recurrent layers had.

A recipe: asks everybody who knows something. Must not know how it is drawn.
"""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from itertools import groupby
from statistics import fmean
from typing import TYPE_CHECKING

from gearshift.act.executor import Timing
from gearshift.act.labels import size_number
from gearshift.ir.graph import Graph
from gearshift.ir.region import boundary, run_order
from gearshift.ir.snapshot import Snapshot
from gearshift.ir.topology import CALLER
from gearshift.ir.work import value_bytes, work_of
from gearshift.observe.sampler import mean_parts
from gearshift.plan.plan import Plan, Region
from gearshift.view.story import Box, Cut, Stride, Strip

if TYPE_CHECKING:
    from gearshift.runtime import Runtime


def plans_of(runtime: "Runtime") -> dict[str, Plan]:
    loop = runtime._loop
    plans = [] if loop is None else list(loop.guard.plans.values())
    return {plan.fingerprint: plan for plan in (*plans, runtime.plan)}


def cuts_of(runtime: "Runtime", seen: Sequence[Snapshot], start_s: float) -> list[Cut]:
    """Stretches with the same plan in force."""
    plans, place = plans_of(runtime), runtime.program.graph.position
    stays = [list(stay) for _, stay in groupby(seen, key=lambda snapshot: snapshot.plan)]
    starts_s = [stay[0].at_s - start_s for stay in stays]
    ends_s = starts_s[1:] + [stay[-1].at_s - start_s for stay in stays[-1:]]
    return [
        Cut(
            begin_s=begin_s,
            end_s=end_s,
            strips=tuple(_strip(region, place) for region in plans[stay[0].plan].regions),
        )
        for begin_s, end_s, stay in zip(starts_s, ends_s, stays, strict=True)
        if stay[0].plan in plans
    ]


def _strip(region: Region, place: Mapping[str, int]) -> Strip:
    return Strip(
        first=place[region.ops[0]],
        last=place[region.ops[-1]],
        backend=region.rewrite.backend,
        about=f"{region.name}: {len(region.ops)} ops by {region.setting} on {region.engine}",
    )


def strides_of(runtime: "Runtime", start_s: float) -> list[Stride]:
    """Layer by layer."""
    several = len(runtime.space.stacks) > 1
    return [
        Stride(
            layer=f"{region if several else ''} layer {layer}".strip(),
            setting=f"{stride.steps}{_where(stride.region)}",
            begin_s=stride.begin_s - start_s,
            end_s=stride.end_s - start_s,
            step_s=stride.busy_s / stride.num_steps,
            switched=stride.switch_s is not None,
        )
        for (region, layer), strides in runtime._serving.strides.by_layer().items()
        for stride in strides
    ]


def _where(region: Region) -> str:
    """As far as it is not all of the calling thread's cores."""
    threads = "" if region.rewrite.threads is None else f" x{region.rewrite.threads}"
    rows = "" if region.split is None else f" {region.split}"
    return f"{threads}{rows}" if region.engine == CALLER else f"{rows} on {region.engine}"


def boxes_of(runtime: "Runtime", timings: Sequence[Timing]) -> list[Box]:
    """In an order in which they can run."""
    plan, graph = runtime.plan, runtime.program.graph
    traffic = _traffic(runtime)
    order = run_order(graph, [region.ops for region in plan.regions])
    assert order is not None, "a plan in force can run"
    home = {op: region.name for region in plan.regions for op in region.ops}
    feeds: dict[str, dict[str, None]] = defaultdict(dict)
    for op in graph.ops:
        for operand in op.operands:
            made_by = graph.producer.get(operand)
            if made_by is not None and home[made_by] != home[op.name]:
                feeds[home[made_by]][home[op.name]] = None
    mean_s = _region_s(timings)
    if not mean_s and timings and len(plan.regions) == 1:  # the model itself leaves no stretches
        mean_s = {plan.regions[0].name: fmean(timing.call_s for timing in timings)}
    parts = list(dict.fromkeys(op.fragment for op in graph.ops))
    shares = mean_parts([timing.parts for timing in timings])
    return [
        Box(
            name=region.name,
            title=_title(region, graph),
            num_ops=len(region.ops),
            engine=region.engine,
            backend=region.rewrite.backend,
            rewrite=region.setting,
            feeds=tuple(feeds[region.name]),
            mean_s=mean_s.get(region.name),
            moved_bytes=traffic.get(region.name, (None, None))[0],
            transfer_bytes=traffic.get(region.name, (None, None))[1],
            part=parts.index(graph.by_name[region.name].fragment),
            split="" if region.split is None else str(region.split),
            shares={} if region.split is None else shares.get(region.name, {}),
        )
        for region in (plan.regions[index] for index in order)
    ]


def _traffic(runtime: "Runtime") -> dict[str, tuple[float, float]]:
    """By region, what it moves and what crosses its boundary at the example's sizes; nothing where
    a size is not known before the call."""
    found = {}
    for fragment in runtime.program.fragments:
        graph, size = (
            fragment.graph,
            partial(size_number, bound=fragment.sizes.bind(fragment.example)),
        )
        mine = [r for r in runtime.plan.regions if r.name in graph.position]
        for region in mine:
            edge = boundary(graph, region.ops)
            with suppress(ValueError):
                moved = work_of(graph, region.ops, size).moved_bytes
                crossing = value_bytes(graph, (*edge.inputs, *edge.outputs), size)
                found[region.name] = (moved, float(crossing))
    return found


def _title(region: Region, graph: Graph) -> str:
    """The modules it lies in, as few as tell it from others."""
    paths = [graph.by_name[op].scope.split(".") for op in region.ops]
    shared = 0
    while all(len(path) > shared + 1 and path[shared] == paths[0][shared] for path in paths):
        shared += 1
    names = list(dict.fromkeys(".".join(path[: shared + 1]) for path in paths if path[0]))
    if not names:
        return region.name
    return names[0] if len(names) == 1 else f"{names[0]} … {names[-1]}"


def _region_s(timings: Iterable[Timing]) -> dict[str, float]:
    parts: dict[str, list[float]] = defaultdict(list)
    for timing in timings:
        for region, seconds in timing.region_s.items():
            parts[region].append(seconds)
    return {region: fmean(seconds) for region, seconds in parts.items()}
