"""Regions within regions: along the modules a model is made of and, where those end, along the flow
of its data.

Must not know what is decided about any of them.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate, groupby, pairwise

from gearshift.ir.graph import Graph

Ops = tuple[str, ...]
WHOLE = "the whole model"


@dataclass(frozen=True, slots=True, kw_only=True)
class Branch:
    """Ops that could be one region, and what they fall into."""

    name: str
    """The path of their module; of ops that have none to themselves, the first one's name."""
    ops: Ops
    children: tuple["Branch", ...] = ()

    def walk(self, depth: int, level: int = 0) -> Iterator[tuple[int, "Branch"]]:
        """Itself and what is below it, so many levels deep, each with its level."""
        yield level, self
        for child in self.children if level < depth else ():
            yield from child.walk(depth, level + 1)

    def at(self, depth: int) -> Iterator["Branch"]:
        """What it falls into so many levels below; what ends sooner stays whole."""
        if depth == 0 or not self.children:
            yield self
        else:
            for child in self.children:
                yield from child.at(depth - 1)


def hierarchy(graph: Graph) -> tuple[Branch, ...]:
    """One for each fragment. All of it is made of neighbours in graph order: convex on any
    graph."""
    found = []
    for fragment, ops in groupby(graph.ops, lambda op: op.fragment):
        root = _along_modules(graph, tuple(op.name for op in ops), 0)
        nameless = root.name == root.ops[0]
        found.append(replace(root, name=fragment or WHOLE) if nameless else root)
    return tuple(found)


def _along_modules(graph: Graph, ops: Ops, level: int) -> Branch:
    """`level` is how many names of the path they have in common."""
    paths = {op: _path(graph, op) for op in ops}
    while len({path[level : level + 1] for path in paths.values()}) == 1:
        if len(paths[ops[0]]) == level:
            return _along_data(graph, ops, level)
        level += 1
    runs = [tuple(run) for _, run in groupby(ops, lambda op: paths[op][level : level + 1])]
    children = tuple(
        _along_modules(graph, run, level) if len(paths[run[0]]) > level else _along_data(graph, run)
        for run in runs
    )
    return Branch(name=_name(graph, ops, level), ops=ops, children=children)


def _path(graph: Graph, op: str) -> Ops:
    scope = graph.by_name[op].scope
    return tuple(scope.split(".")) if scope else ()


def _name(graph: Graph, ops: Ops, level: int) -> str:
    return ".".join(_path(graph, ops[0])[:level]) or ops[0]


def _along_data(graph: Graph, ops: Ops, level: int = 0) -> Branch:
    """Where a single value is all that goes on, one part ends and the next begins."""
    places = [0, *_waists(graph, ops), len(ops)]
    parts = [ops[begin:end] for begin, end in pairwise(places)]
    children = tuple(map(_by_op, parts)) if len(parts) > 1 else _by_op(ops).children
    return Branch(name=_name(graph, ops, level), ops=ops, children=children)


def _by_op(ops: Ops) -> Branch:
    singles = tuple(Branch(name=op, ops=(op,)) for op in ops) if len(ops) > 1 else ()
    return Branch(name=ops[0], ops=ops, children=singles)


def _waists(graph: Graph, ops: Sequence[str]) -> list[int]:
    """Places between two ops that exactly one value crosses, be it made here or given."""
    made: dict[str, int] = {}
    last_read: dict[str, int] = {}
    for place, op in enumerate(ops):
        for operand in graph.by_name[op].operands:
            if operand not in graph.weight_names:
                made.setdefault(operand, 0)
                last_read[operand] = place
        for out in graph.by_name[op].outputs:
            made[out] = place + 1
    steps = [0] * (len(ops) + 2)
    for value, until in last_read.items():
        steps[made[value]] += 1
        steps[until + 1] -= 1
    crossing = list(accumulate(steps))
    return [place for place in range(1, len(ops)) if crossing[place] == 1]
