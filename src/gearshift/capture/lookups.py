"""Ops that read by index, and how the index is computed.

The model refuses an index outside its table; other runtimes answer with whatever is there.
"""

from collections.abc import Iterator
from typing import Any

from torch import Tensor
from torch.fx import Node

from gearshift.capture.fx import Captured
from gearshift.capture.program import Lookup
from gearshift.ir.graph import Graph

BY_DIM = frozenset(
    {"gather", "index_add", "index_copy", "index_fill", "index_select"}
    | {"scatter", "scatter_add", "scatter_reduce"}
)
BY_LIST = frozenset({"index", "index_put", "_unsafe_index"})


def find_lookups(captured: Captured) -> tuple[Lookup, ...]:
    """All whose index is computed in the call, from inputs or from sizes."""
    graph = captured.graph
    names = {node: name for name, node in captured.nodes.items()}
    found = []
    for op, (node, *_) in captured.members.items():
        for table, dim, index in _reads(node):
            value = names[index]
            if value not in graph.weight_names:
                made_by = _ancestors(graph, value)
                size = graph.values[names[table]].shape[dim]
                found.append(Lookup(op=op, index=value, size=size, made_by=made_by))
    return tuple(found)


def _reads(node: Node) -> Iterator[tuple[Node, int, Node]]:
    """The table, the dimension and the index of each read."""
    target = str(node.target).split(".")
    base = target[1] if target[0] == "aten" else ""
    args: Any = node.args
    if base == "embedding":
        yield args[0], 0, args[1]
    elif base in BY_DIM:
        yield args[0], args[1], args[2]
    elif base in BY_LIST:
        for dim, index in enumerate(args[1]):
            if isinstance(index, Node) and _is_index(index):
                yield args[0], dim, index


def _is_index(node: Node) -> bool:
    value = node.meta.get("val")
    return isinstance(value, Tensor) and value.dtype.itemsize > 1  # not a mask


def _ancestors(graph: Graph, value: str) -> tuple[str, ...]:
    found: set[str] = set()
    waiting = [value]
    while waiting:
        producer = graph.producer.get(waiting.pop())
        if producer is not None and producer not in found:
            found.add(producer)
            waiting += graph.by_name[producer].operands
    return tuple(sorted(found, key=graph.position.__getitem__))
