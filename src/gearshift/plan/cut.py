"""The knob `cut`: where regions begin and end.

Must not know engines or backends.
"""

from collections import Counter
from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass, replace
from itertools import groupby
from typing import TYPE_CHECKING, Any

from gearshift.ir.graph import Graph, Op
from gearshift.ir.hierarchy import hierarchy
from gearshift.ir.region import is_convex, run_order

if TYPE_CHECKING:
    from gearshift.plan.legal import Space
    from gearshift.plan.plan import Plan, Region
    from gearshift.plan.rewrite import Rewrite


@dataclass(frozen=True, slots=True, kw_only=True)
class Divide:
    """The region's ops before `at`, in graph order, become one region, the rest another."""

    region: str
    at: str

    def apply(self, plan: "Plan", graph: Graph) -> "Plan":
        old = plan.region(self.region)
        place = old.ops.index(self.at)
        parts = tuple(replace(old, ops=ops) for ops in (old.ops[:place], old.ops[place:]) if ops)
        return plan.exchange((old,), parts, graph)


@dataclass(frozen=True, slots=True, kw_only=True)
class Merge:
    """The other region joins the first and takes its settings."""

    region: str
    other: str

    def apply(self, plan: "Plan", graph: Graph) -> "Plan":
        first, second = plan.region(self.region), plan.region(self.other)
        merged = replace(first, ops=(*first.ops, *second.ops))
        return plan.exchange((first, second), (merged,), graph)


def moves(plan: "Plan", space: "Space") -> Iterator[Divide | Merge]:
    for region in plan.regions:
        for at in region.ops[1:]:
            yield Divide(region=region.name, at=at)
    pairs = {(first.name, second.name) for first, second in _neighbours(plan, space.graph)}
    following = zip(plan.regions, plan.regions[1:], strict=False)
    pairs |= {(first.name, second.name) for first, second in following}
    for first, second in sorted(pairs):
        yield Merge(region=first, other=second)


def _neighbours(plan: "Plan", graph: Graph) -> list[tuple["Region", "Region"]]:
    """Pairs of regions of which the second reads from the first."""
    home = {op: region for region in plan.regions for op in region.ops}
    pairs: dict[tuple[str, str], tuple[Region, Region]] = {}
    for op in graph.ops:
        for operand in op.operands:
            maker = graph.producer.get(operand)
            if maker is not None and home[maker] is not home[op.name]:
                first, second = home[maker], home[op.name]
                pairs[first.name, second.name] = (first, second)
    return list(pairs.values())


def why_illegal(plan: "Plan", space: "Space") -> str | None:
    graph = space.graph
    for number, region in enumerate(plan.regions):
        if not region.ops:
            return f"region {number} has no ops"
    count = Counter(op for region in plan.regions for op in region.ops)
    for reason, names in (
        ("unknown op", [op for op in count if op not in graph.position]),
        ("op in more than one region", [op for op, times in count.items() if times > 1]),
        ("op in no region", [op.name for op in graph.ops if op.name not in count]),
    ):
        if names:
            return f"{reason}: {', '.join(names[:5])}"
    for region in plan.regions:
        if len({graph.by_name[op].fragment for op in region.ops}) > 1:
            return f"region {region.name} reaches over fragments that Python code lies between"
    if run_order(graph, [region.ops for region in plan.regions]) is None:
        return _why_no_order(plan, graph)
    return None


def _why_no_order(plan: "Plan", graph: Graph) -> str:
    for region in plan.regions:
        if not is_convex(graph, region.ops):
            return f"region {region.name} is not convex: a path leaves it and comes back"
    pairs = {(first.name, second.name) for first, second in _neighbours(plan, graph)}
    mutual = [pair for pair in sorted(pairs) if pair[::-1] in pairs]
    circle = " and ".join(mutual[0]) if mutual else ", ".join(r.name for r in plan.regions)
    return f"regions wait for each other in a circle: {circle}"


def cover(graph: Graph, runnable: Collection[str], rewrite: "Rewrite") -> "Plan":
    """As few regions as give this rewrite all it can run; the rest stays eager."""
    from gearshift.plan.plan import Region, ordered

    runs = _runs(graph, lambda op: (op.fragment, op.name in runnable))
    regions = [
        Region(ops=ops, rewrite=rewrite) if can else Region(ops=ops) for (_, can), ops in runs
    ]
    return ordered(graph, tuple(regions))


def around(graph: Graph, apart: Collection[str], rewrite: "Rewrite") -> "Plan":
    """Each of some ops a region by itself, and what lies between them by this rewrite."""
    from gearshift.plan.plan import Region, ordered

    runs = _runs(graph, lambda op: (op.fragment, op.name if op.name in apart else ""))
    regions = [
        Region(ops=ops) if alone else Region(ops=ops, rewrite=rewrite) for (_, alone), ops in runs
    ]
    return ordered(graph, tuple(regions))


def formed(
    graph: Graph,
    *,
    granularity: int,
    like: "Region",
    runnable: Collection[str] | None = None,
) -> "Plan":
    """Regions so many levels down the hierarchy of modules and data flow; 0: one per fragment. Of
    what is not all runnable so, if that is told, the rest stays eager."""
    from gearshift.plan.plan import Region, ordered

    branches = [found for root in hierarchy(graph) for found in root.at(granularity)]
    able = [runnable is None or set(runnable).issuperset(branch.ops) for branch in branches]
    regions = [
        replace(like, ops=branch.ops) if can else Region(ops=branch.ops)
        for branch, can in zip(branches, able, strict=True)
    ]
    return ordered(graph, tuple(regions))


def _runs(
    graph: Graph, key: Callable[[Op], tuple[Any, ...]]
) -> list[tuple[tuple[Any, ...], tuple[str, ...]]]:
    """Neighbours in graph order that are alike: convex on any graph."""
    groups = groupby(graph.ops, key)
    return [(common, tuple(op.name for op in ops)) for common, ops in groups]
