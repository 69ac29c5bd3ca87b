"""A plan: for each region its ops and what was decided about them.

Must not know which plans are legal; that is `plan/legal.py`.
"""

import hashlib
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Protocol

from gearshift.errors import PlanError
from gearshift.ir.graph import Graph
from gearshift.ir.topology import CALLER, is_one_core, members
from gearshift.plan.rewrite import EAGER, Rewrite
from gearshift.plan.split import Split
from gearshift.plan.unroll import Steps, Unroll


@dataclass(frozen=True, slots=True, kw_only=True)
class Region:
    """A convex set of ops that runs as one unit, and its settings."""

    ops: tuple[str, ...]
    engine: str = CALLER
    rewrite: Rewrite = EAGER
    split: Split | None = None
    unroll: Unroll | None = None

    @property
    def name(self) -> str:
        """The first op's name: no other region of the same plan has it."""
        return self.ops[0]

    @property
    def threads(self) -> int | None:
        """How many it keeps busy; None: as many as there are cores."""
        count = len(members(self.engine))
        lone = 1 if is_one_core(self.engine) else None
        return count if count > 1 else self.rewrite.threads or lone

    @property
    def setting(self) -> str:
        """How it is compiled and, if it is, divided or unrolled, in a few words."""
        how = str(self.rewrite if self.unroll is None else self.unroll)
        if self.unroll is not None and self.rewrite.threads is not None:
            how = f"{how} x{self.rewrite.threads}"
        return how if self.split is None else f"{how} {self.split}"


def on_caller(region: Region) -> Region:
    """Undivided, on the calling thread and as many more as there were."""
    if region.split is None:
        return replace(region, engine=CALLER)
    together = replace(region.rewrite, threads=region.threads)
    return replace(region, engine=CALLER, split=None, rewrite=together)


@dataclass(frozen=True, kw_only=True)
class Plan:
    """Not slotted: fingerprint and summary are made once, on first use."""

    regions: tuple[Region, ...]

    @cached_property
    def fingerprint(self) -> str:
        return hashlib.sha256(repr(self).encode()).hexdigest()[:10]

    @cached_property
    def summary(self) -> str:
        """In a few words: how its regions are compiled, and where they run."""
        parts = [(r.setting, r.engine) for r in self.regions]
        told = [how if where == CALLER else f"{how} on {where}" for how, where in parts]
        text = " + ".join(dict.fromkeys(told))
        return text if len(told) < 2 else f"{text}, {len(told)} regions"

    def region(self, name: str) -> Region:
        found = next((region for region in self.regions if region.name == name), None)
        if found is None:
            raise PlanError(f"this plan has no region {name!r}")
        return found

    def exchange(self, old: tuple[Region, ...], new: tuple[Region, ...], graph: Graph) -> "Plan":
        """This plan with some regions taken out and others put in, in graph order."""
        kept = [region for region in self.regions if region not in old]
        return ordered(graph, (*kept, *new))


def why_malformed(plan: Plan) -> str | None:
    """What is not of its type: plans come from users' hands, too."""
    if not isinstance(plan, Plan) or not isinstance(plan.regions, tuple):
        return f"expected a Plan with a tuple of regions, got {plan!r:.100}"
    for number, region in enumerate(plan.regions):
        if not isinstance(region, Region) or not isinstance(region.rewrite, Rewrite):
            return f"region {number}: expected a Region with a Rewrite, got {region!r:.100}"
        if not isinstance(region.ops, tuple) or not all(isinstance(op, str) for op in region.ops):
            return f"region {number}: ops are a tuple of names, not {region.ops!r:.100}"
        if not isinstance(region.engine, str):
            return f"region {number}: engine is a name, not {region.engine!r:.100}"
        threads, spin = region.rewrite.threads, region.rewrite.spin
        if not isinstance(threads, int | None) or not isinstance(spin, bool):
            return f"region {number}: threads={threads!r:.20}, spin={spin!r:.20}"
        if not isinstance(region.rewrite.option, str):
            return f"region {number}: option={region.rewrite.option!r:.50}"
        if not _is_split(region.split):
            return f"region {number}: split={region.split!r:.100}"
        if not _is_unroll(region.unroll):
            return f"region {number}: unroll={region.unroll!r:.100}"
    return None


def _is_split(split: Split | None) -> bool:
    if split is None:
        return True
    if not isinstance(split, Split) or not isinstance(split.how, str):
        return False
    if split.block is not None and type(split.block) is not int:
        return False
    shares = split.shares
    return shares is None or (
        isinstance(shares, tuple) and all(type(share) is int for share in shares)
    )


def _is_unroll(unroll: Unroll | None) -> bool:
    if unroll is None:
        return True
    if not isinstance(unroll, Unroll) or not isinstance(unroll.layers, tuple):
        return False
    kernels = [isinstance(s, Steps) and isinstance(s.kernel, str) for s in unroll.layers]
    return all(kernels)


class Move(Protocol):
    """One small typed edit of a plan: an action, an annealing neighbour, a mutation."""

    def apply(self, plan: Plan, graph: Graph) -> Plan: ...


def ordered(graph: Graph, regions: tuple[Region, ...]) -> Plan:
    """The canonical form, so that equal plans compare equal: ops and regions in graph order."""
    sort = graph.position.__getitem__
    tidy = [replace(r, ops=tuple(sorted(r.ops, key=sort))) for r in regions]
    return Plan(regions=tuple(sorted(tidy, key=lambda r: sort(r.name))))


def whole(
    graph: Graph, *, engine: str = CALLER, rewrite: Rewrite = EAGER, split: Split | None = None
) -> Plan:
    """One region per fragment."""
    fragments = dict.fromkeys(op.fragment for op in graph.ops)
    inside = [tuple(op.name for op in graph.ops if op.fragment == f) for f in fragments]
    regions = tuple(Region(ops=o, engine=engine, rewrite=rewrite, split=split) for o in inside)
    return ordered(graph, regions)
