"""Sets of ops that run as one unit: boundary, convexity, order, identity by content.

Must not know what is decided about a region; that is `plan/`.
"""

import hashlib
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from graphlib import CycleError, TopologicalSorter

from gearshift.ir.graph import Graph


@dataclass(frozen=True, slots=True, kw_only=True)
class Boundary:
    """The values a region takes, the weights it holds, the values others need from it."""

    inputs: tuple[str, ...]
    weights: tuple[str, ...]
    outputs: tuple[str, ...]


def boundary(graph: Graph, ops: Sequence[str]) -> Boundary:
    members = frozenset(ops)
    operands = dict.fromkeys(o for name in ops for o in graph.by_name[name].operands)
    made = [out for name in ops for out in graph.by_name[name].outputs]
    inner = frozenset(made)
    outside = [operand for operand in operands if operand not in inner]
    return Boundary(
        inputs=tuple(o for o in outside if o not in graph.weight_names),
        weights=tuple(o for o in outside if o in graph.weight_names),
        outputs=tuple(out for out in made if _leaves(graph, out, members)),
    )


def _leaves(graph: Graph, value: str, members: Collection[str]) -> bool:
    if value in graph.outputs:
        return True
    return any(reader not in members for reader in graph.readers.get(value, ()))


def run_order(graph: Graph, regions: Sequence[Sequence[str]]) -> tuple[int, ...] | None:
    """An order in which the regions can run, or None if two of them wait for each other."""
    home = {name: index for index, ops in enumerate(regions) for name in ops}
    sorter: TopologicalSorter[int] = TopologicalSorter(dict.fromkeys(range(len(regions)), ()))
    for op in graph.ops:
        for operand in op.operands:
            maker = graph.producer.get(operand)
            if maker is not None and home[maker] != home[op.name]:
                sorter.add(home[op.name], home[maker])
    try:
        sorter.prepare()
    except CycleError:
        return None
    order: list[int] = []
    while ready := sorter.get_ready():
        for index in sorted(ready, key=lambda i: graph.position[regions[i][0]]):
            order.append(index)
        sorter.done(*ready)
    return tuple(order)


def is_convex(graph: Graph, ops: Collection[str]) -> bool:
    """No path leaves the set and comes back."""
    members = frozenset(ops)
    tainted: set[str] = set()
    for op in graph.ops:
        makers = {graph.producer[o] for o in op.operands if o in graph.producer}
        if op.name in members:
            if makers & tainted:
                return False
        elif makers & tainted or makers & members:
            tainted.add(op.name)
    return True


def identity(graph: Graph, ops: Sequence[str]) -> str:
    """A hash of what the region computes: names and weight contents do not matter, shapes do."""
    numbers: dict[str, int] = {}
    members = frozenset(ops)

    def number(value: str) -> int:
        return numbers.setdefault(value, len(numbers))

    lines = []
    for name in ops:
        op = graph.by_name[name]
        operands = ",".join(_operand_text(graph, o, number(o), members) for o in op.operands)
        outputs = ",".join(str(number(out)) for out in op.outputs)
        lines.append(f"{outputs}={op.form}({operands})")
    leaving = ",".join(str(number(out)) for out in boundary(graph, ops).outputs)
    text = "\n".join((*lines, leaving))
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def _operand_text(graph: Graph, value: str, number: int, members: Collection[str]) -> str:
    if graph.producer.get(value) in members:
        return str(number)
    role = "w" if value in graph.weight_names else "i"
    return f"{number}:{role}:{graph.values[value]}"
