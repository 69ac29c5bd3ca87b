"""What may be decided here: the Space of a model on a machine, legality, legal moves.

Must not know what is wise; only what is allowed. What is not proven legal is refused.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from gearshift.errors import PlanError
from gearshift.ir.graph import Graph
from gearshift.ir.kinds import ATTENTION, CONV, LINEAR, MATMUL
from gearshift.ir.recurrent import Stack
from gearshift.ir.topology import team
from gearshift.plan import cut, place, rewrite, split, unroll
from gearshift.plan.plan import Move, Plan, Region, whole, why_malformed
from gearshift.plan.rewrite import Rewrite
from gearshift.plan.split import Split

KNOBS = (cut, place, rewrite, split, unroll)
SLOW_OR_PLAIN = ("inductor", "eager")
HEAVY = frozenset({LINEAR, MATMUL, CONV, ATTENTION})
"""Kinds of ops that most of the arithmetic is in."""


def _not_proven(region: Region) -> str | None:
    return "not proven to be the same in parts"


@dataclass(frozen=True, slots=True, kw_only=True)
class Space:
    graph: Graph
    engines: tuple[str, ...]
    rewrites: tuple[Rewrite, ...]
    """The settings worth trying on this machine."""
    runnable: Mapping[str, frozenset[str]]
    """For each backend, the ops it can run."""
    settings: Mapping[str, frozenset[str]]
    """For each backend, the settings of a Rewrite it heeds."""
    engine_backends: Mapping[str, frozenset[str]] = field(default_factory=dict)
    """For engines that cannot host every backend, those they can."""
    max_threads: int = 1
    usable_cores: int = 1
    """How many threads can be at work at once: a quota may allow fewer than there are cores."""
    why_undivided: Callable[[Region], str | None] = _not_proven
    """Why a region cannot be divided as its split says; None if it can."""
    why_untiled: Callable[[Region], str | None] = _not_proven
    """Why a region cannot run a few rows at a time; None if it can."""
    stacks: Mapping[str, Stack] = field(default_factory=dict)
    """The recurrent ops that can be unrolled."""
    kernels: Mapping[str, frozenset[str]] = field(default_factory=dict)
    """For each of them, what can compute it."""
    count_rows: Callable[[], int] = int
    """Of the example, as far as is known: 0 if there are none."""


def why_illegal(plan: Plan, space: Space) -> str | None:
    reason = why_malformed(plan)
    if reason is not None:
        return reason
    return next(filter(None, (knob.why_illegal(plan, space) for knob in KNOBS)), None)


def check(plan: Plan, space: Space) -> None:
    reason = why_illegal(plan, space)
    if reason is not None:
        raise PlanError(f"this plan is not legal here: {reason}")


def legal_moves(plan: Plan, space: Space) -> Iterator[Move]:
    for knob in KNOBS:
        for move in knob.moves(plan, space):
            if why_illegal(move.apply(plan, space.graph), space) is None:
                yield move


def candidates(
    space: Space, splits: Sequence[Split] = (Split(),), granularity: int = 0
) -> dict[str, Plan]:
    """For each setting the plan that gives it all it can run, by fingerprint; eager is one. What
    takes long to build is left out where others can run everything. And the whole model divided
    over an engine for each core, or for each row if those are fewer, or as much of it as can be; if
    there are several splits to choose from, over the first two cores by each of them, and on each
    of the two alone. `granularity` is how many levels down the hierarchy the regions of the others
    are."""
    runnable = {name: ops for name, ops in space.runnable.items() if ops}
    everything = len(space.graph.ops)
    quick = any(len(ops) == everything for n, ops in runnable.items() if n not in SLOW_OR_PLAIN)
    usual = [
        r
        for r in space.rewrites
        if r.backend in runnable and not (quick and r.backend == "inductor")
    ]
    plans = [_formed(space.graph, runnable[r.backend], r, granularity) for r in usual]
    plans += _divided(space, runnable, splits)
    plans += _unrolled(space, usual)
    legal = [plan for plan in (whole(space.graph), *plans) if why_illegal(plan, space) is None]
    return {plan.fingerprint: plan for plan in legal}


def _formed(graph: Graph, runnable: frozenset[str], rewrite: Rewrite, granularity: int) -> Plan:
    if granularity == 0:
        return cut.cover(graph, runnable, rewrite)
    like = Region(ops=(), rewrite=rewrite)
    return cut.formed(graph, granularity=granularity, like=like, runnable=runnable)


def _unrolled(space: Space, rewrites: Sequence[Rewrite]) -> list[Plan]:
    """All recurrent ops in each way worth trying; what is between them by the first of the quick
    backends that can run all of it, if there is much to compute, else as the model itself runs
    it."""
    graph = space.graph
    between = [op for op in graph.ops if op.name not in space.stacks]
    ops, much = {op.name for op in between}, any(op.kind in HEAVY for op in between)
    able = [r for r in rewrites if ops <= space.runnable[r.backend] and r.threads != 1]
    quick = [r for r in able if much and r.backend not in SLOW_OR_PLAIN]
    rest = cut.around(graph, space.stacks, quick[0] if quick else Rewrite())
    ways = {name: list(unroll.ways(stack, space)) for name, stack in space.stacks.items()}
    plans = []
    for number in range(max(map(len, ways.values()), default=0)):
        plan = rest
        for name, some in ways.items():
            way = some[min(number, len(some) - 1)]
            move = unroll.SetUnroll(region=name, **way._asdict())
            plan = move.apply(plan, graph)
        plans.append(plan)
    return plans


def _divided(
    space: Space, runnable: Mapping[str, frozenset[str]], splits: Sequence[Split]
) -> list[Plan]:
    cores = split.single_cores(space)
    if len(cores) < 2 or space.usable_cores < 2:
        return []
    alone = [r for r in space.rewrites if r.threads == 1 and r.backend in runnable]
    everything = [r for r in alone if len(runnable[r.backend]) == len(space.graph.ops)]
    graph, several, num_rows = space.graph, len(splits) > 1, space.count_rows()
    engines = cores[: 2 if several else min(space.usable_cores, max(2, num_rows))]
    divided = [
        whole(graph, engine=team(engines), rewrite=r, split=how)
        for r in everything
        for how in splits
    ]
    if several:
        return divided + [whole(graph, engine=c, rewrite=r) for r in everything for c in engines]
    if num_rows < 2 or any(why_illegal(plan, space) is None for plan in divided):
        return divided
    return _divided_in_part(space, everything, team(engines))


def _divided_in_part(space: Space, alone: Sequence[Rewrite], engine: str) -> list[Plan]:
    """As far as that is legal; worth a try if most of the arithmetic can be."""
    heavy = {op.name for op in space.graph.ops if op.kind in HEAVY}
    plans = []
    for single in alone:
        rest = replace(single, threads=space.usable_cores)
        plan = split.as_far_as_legal(space, engine=engine, rewrite=single, rest=rest)
        if plan is not None:
            divided = {op for region in plan.regions if region.split for op in region.ops}
            plans += [plan] if 2 * len(heavy & divided) > len(heavy) else []
    return plans
