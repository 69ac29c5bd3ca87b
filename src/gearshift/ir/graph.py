"""The captured graph as plain data: values, ops, and who reads what.

Must not know how anything is captured or run.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from types import MappingProxyType


@dataclass(frozen=True, slots=True, kw_only=True)
class Value:
    """One tensor; a dimension is a number, or the text of an expression over input sizes."""

    name: str
    dtype: str
    shape: tuple[int | str, ...]

    def __str__(self) -> str:
        return f"{self.dtype}[{', '.join(map(str, self.shape))}]"


@dataclass(frozen=True, slots=True, kw_only=True)
class Op:
    """One node of the captured graph. `form` is its target and arguments, operands as %0, %1."""

    name: str
    kind: str
    form: str
    operands: tuple[str, ...]
    outputs: tuple[str, ...]
    fragment: str = ""
    scope: str = ""
    line: str = ""


@dataclass(frozen=True, kw_only=True)
class Graph:
    """Ops in an order in which they can run. Weights are values nobody makes and no caller gives.

    Not slotted: the look-ups below are made once, on first use.
    """

    inputs: tuple[Value, ...]
    weights: tuple[Value, ...]
    ops: tuple[Op, ...]
    results: tuple[Value, ...]
    outputs: tuple[str, ...]

    @cached_property
    def values(self) -> Mapping[str, Value]:
        everything = (*self.inputs, *self.weights, *self.results)
        return MappingProxyType({value.name: value for value in everything})

    @cached_property
    def weight_names(self) -> frozenset[str]:
        return frozenset(value.name for value in self.weights)

    @cached_property
    def by_name(self) -> Mapping[str, Op]:
        return MappingProxyType({op.name: op for op in self.ops})

    @cached_property
    def position(self) -> Mapping[str, int]:
        return MappingProxyType({op.name: index for index, op in enumerate(self.ops)})

    @cached_property
    def producer(self) -> Mapping[str, str]:
        """The op that makes a value; inputs and weights have none."""
        return MappingProxyType({out: op.name for op in self.ops for out in op.outputs})

    @cached_property
    def from_inputs(self) -> frozenset[str]:
        """Inputs, and all values that depend on what they hold; the others, on sizes at most."""
        found = {value.name for value in self.inputs}
        for op in self.ops:
            if not found.isdisjoint(op.operands):
                found.update(op.outputs)
        return frozenset(found)

    @cached_property
    def readers(self) -> Mapping[str, tuple[str, ...]]:
        readers: dict[str, list[str]] = {}
        for op in self.ops:
            for operand in dict.fromkeys(op.operands):
                readers.setdefault(operand, []).append(op.name)
        return MappingProxyType({name: tuple(ops) for name, ops in readers.items()})


def join_graphs(graphs: tuple[Graph, ...]) -> Graph:
    """Side by side, unconnected: the fragments of a model that could not be captured whole."""
    if len(graphs) == 1:
        return graphs[0]
    return Graph(
        inputs=tuple(value for graph in graphs for value in graph.inputs),
        weights=tuple(value for graph in graphs for value in graph.weights),
        ops=tuple(op for graph in graphs for op in graph.ops),
        results=tuple(value for graph in graphs for value in graph.results),
        outputs=tuple(name for graph in graphs for name in graph.outputs),
    )
