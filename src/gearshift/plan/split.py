"""The knob `split`: how one region's tensors are divided over the engines of a team.

Must not know how a part is computed; whether a region can be divided so comes in the Space.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from gearshift.ir.graph import Graph
from gearshift.ir.hierarchy import Branch, hierarchy
from gearshift.ir.topology import is_one_core, members, team

if TYPE_CHECKING:
    from gearshift.plan.legal import Space
    from gearshift.plan.plan import Plan, Region
    from gearshift.plan.rewrite import Rewrite

ROWS, INTERLEAVED = "rows", "interleaved"
COLUMNS, DEPTH, SPATIAL = "columns", "depth", "spatial"
HOWS = (ROWS, INTERLEAVED, COLUMNS, DEPTH, SPATIAL)
MOST_REGIONS, LEVELS = 8, 4
"""Where not all of a model can be divided: in so many regions at most, since engines hand over
between them; and so deep its modules are looked into for them."""
MOST = 1000
"""No engine has more shares."""
BLOCK = 32
"""Columns that go to an engine together, if nothing else is said."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Split:
    how: str = ROWS
    """rows: each engine takes some in a row; interleaved: each takes every second, with two
    engines; columns: some columns of a product; depth: some of the channels that are summed over;
    spatial: some of the height of an image."""
    shares: tuple[int, ...] | None = None
    """For each engine of the team. None: those of `rows` follow how fast each is, from call to
    call; others are equal."""
    block: int | None = None
    """Of `columns`: how many go to an engine together, in turn."""

    def shares_of(self, num_engines: int) -> tuple[int, ...]:
        """Equal ones, if none are set."""
        return self.shares or (1,) * num_engines

    def __str__(self) -> str:
        shares = "" if self.shares is None else f" {':'.join(map(str, self.shares))}"
        block = "" if self.block is None else f" by {self.block}"
        return f"{self.how}{block}{shares}"


def apportioned(num_rows: int, row_s: Sequence[float]) -> list[int]:
    """So many to each engine, if a row takes each so long: the last to finish is done as early as
    can be."""
    speeds = [1 / seconds for seconds in row_s]
    whole = num_rows / sum(speeds)
    rows = [int(whole * speed) for speed in speeds]
    for _ in range(num_rows - sum(rows)):
        ends_s = [(rows[i] + 1) * row_s[i] for i in range(len(rows))]
        rows[ends_s.index(min(ends_s))] += 1
    return rows


@dataclass(frozen=True, slots=True, kw_only=True)
class SetSplit:
    """Over this team, or, without a split, on this engine."""

    region: str
    engine: str
    split: Split | None

    def apply(self, plan: "Plan", graph: Graph) -> "Plan":
        old = plan.region(self.region)
        new = replace(old, engine=self.engine, split=self.split, unroll=None)
        return plan.exchange((old,), (new,), graph)


def moves(plan: "Plan", space: "Space") -> Iterator[SetSplit]:
    """Over all single cores; equal shares, one engine two or three times another, or as they prove
    to be."""
    everybody = single_cores(space)
    if len(everybody) < 2:
        return
    equal, *unequal = _shares(len(everybody))
    splits = [Split(how=how) for how in HOWS]
    splits += [Split(shares=equal), Split(how=COLUMNS, block=BLOCK // 4)]
    splits += [Split(how=how, shares=some) for how in (ROWS, SPATIAL, COLUMNS) for some in unequal]
    for region in plan.regions:
        for split in splits:
            if split != region.split:
                yield SetSplit(region=region.name, engine=team(everybody), split=split)
        if region.split is not None:
            yield SetSplit(region=region.name, engine=everybody[0], split=None)


def single_cores(space: "Space") -> tuple[str, ...]:
    """Engines of one core each."""
    return tuple(filter(is_one_core, space.engines))


def _shares(num_engines: int) -> list[tuple[int, ...]]:
    """Equal ones; then one engine, each in turn, with half of a share and with a third."""
    unequal = [
        tuple(1 if i == slow else times for i in range(num_engines))
        for times in (2, 3)
        for slow in range(num_engines)
    ]
    return [(1,) * num_engines, *unequal]


def as_far_as_legal(
    space: "Space", *, engine: str, rewrite: "Rewrite", rest: "Rewrite"
) -> "Plan | None":
    """Rows divided over the team in as few regions as can be, so that results are put together only
    where they must be; what cannot be divided goes to the calling thread. None if that is more than
    a few regions, or all of it."""
    from gearshift.plan.plan import Region, ordered

    def divided(ops: tuple[str, ...]) -> Region:
        return Region(ops=ops, engine=engine, rewrite=rewrite, split=Split())

    def is_legal(ops: tuple[str, ...]) -> bool:
        return space.why_undivided(divided(ops)) is None

    parts = [part for root in hierarchy(space.graph) for part in _parts(root, is_legal, LEVELS)]
    joined = _joined(space.graph, parts, is_legal)
    if len(joined) > MOST_REGIONS or not any(can for _, can in joined):
        return None
    regions = [divided(ops) if can else Region(ops=ops, rewrite=rest) for ops, can in joined]
    return ordered(space.graph, tuple(regions))


Stretch = tuple[tuple[str, ...], bool]
"""Ops one after the other, and whether they can be divided."""


def _parts(
    branch: Branch, is_legal: Callable[[tuple[str, ...]], bool], levels: int
) -> Iterator[Stretch]:
    """The largest branches that can be divided, and what is left."""
    if is_legal(branch.ops):
        yield branch.ops, True
    elif not branch.children or levels == 0:
        yield branch.ops, False
    else:
        for child in branch.children:
            yield from _parts(child, is_legal, levels - 1)


def _joined(
    graph: Graph, parts: Sequence[Stretch], is_legal: Callable[[tuple[str, ...]], bool]
) -> list[Stretch]:
    """Neighbours that can be divided together, or cannot be divided, become one."""
    found: list[Stretch] = []
    for ops, can in parts:
        before, could = found[-1] if found else ((), None)
        together = (*before, *ops)
        alike = could is can and len({graph.by_name[op].fragment for op in together}) == 1
        if alike and (not can or is_legal(together)):
            found[-1] = (together, can)
        else:
            found.append((ops, can))
    return found


def why_illegal(plan: "Plan", space: "Space") -> str | None:
    for region in plan.regions:
        reason = _why_illegal(region, space)
        if reason is not None:
            return f"region {region.name}: {reason}"
    return None


def _why_illegal(region: "Region", space: "Space") -> str | None:
    count = len(members(region.engine))
    if region.split is None:
        flows = count > 1 and region.unroll is not None
        if count == 1 or flows:
            return None
        return f"{region.engine} is a team: it takes a region in parts"
    if count == 1:
        return f"a region is split over a team such as cpu:0+cpu:1, not over {region.engine}"
    odd = _why_odd(region.split, count)
    return odd if odd or region.unroll is not None else space.why_undivided(region)


def _why_odd(split: Split, num_engines: int) -> str | None:
    if split.how not in HOWS:
        return f"no split {split.how!r}; there are {', '.join(HOWS)}"
    if split.block is not None and (split.how != COLUMNS or split.block < 1):
        return f"block={split.block}: of columns only, 1 or more"
    if split.shares is None:
        return None
    if split.how == INTERLEAVED:
        return "interleaved rows have no shares"
    if len(split.shares) != num_engines:
        return f"{len(split.shares)} shares for {num_engines} engines"
    if min(split.shares) < 0 or sum(split.shares) == 0 or max(split.shares) > MOST:
        return f"shares {split.shares}: from 0 to {MOST}, not all 0"
    return None
