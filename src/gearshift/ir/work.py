"""What ops have to do, counted from the graph: arithmetic, bytes moved, bytes touched.

Must not know how long anything takes.
"""

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from math import prod

from gearshift.ir import kinds
from gearshift.ir.graph import Graph, Op

Size = Callable[[int | str], int]
BYTES = {"float64": 8, "int64": 8, "float16": 2, "bfloat16": 2, "int16": 2}
TRANSPOSED = re.compile(r"(?i:transpose)|convolution.*, True,")
ONE_BYTE = ("int8", "uint8", "bool")


@dataclass(frozen=True, slots=True, kw_only=True)
class Work:
    """`set_bytes` are the distinct bytes among those moved; `seconds`, how long it took if that was
    measured. A multiply-add is two operations."""

    flops: float
    moved_bytes: float
    set_bytes: float
    seconds: float = 0.0

    @property
    def known(self) -> bool:
        return self.moved_bytes > 0 and self.set_bytes > 0


def work_of(graph: Graph, ops: Sequence[str], size: Size) -> Work:
    """`size` gives the number for a dimension. Views move nothing, look-ups what they find."""
    count = _Counter(graph, size)
    moving = [graph.by_name[name] for name in ops]
    moving = [op for op in moving if op.kind != kinds.RESHAPE]
    moved_bytes, touched = 0, dict[str, int]()
    for op in moving:
        for value, num_bytes in count.touched(op):
            moved_bytes += num_bytes
            touched[value] = max(touched.get(value, 0), num_bytes)
    return Work(
        flops=float(sum(map(count.flops, moving))),
        moved_bytes=float(moved_bytes),
        set_bytes=float(sum(touched.values())),
    )


def made_bytes(graph: Graph, ops: Sequence[str], size: Size) -> int:
    """Of all that these ops make, one after the other."""
    count = _Counter(graph, size)
    moving = [graph.by_name[name] for name in ops if graph.by_name[name].kind != kinds.RESHAPE]
    return sum(count.bytes(value) for op in moving for value in op.outputs)


def value_bytes(graph: Graph, values: Sequence[str], size: Size) -> int:
    return sum(map(_Counter(graph, size).bytes, values))


def boundary_bytes(graph: Graph, size: Size) -> tuple[int, int]:
    """What goes into the graph, and what comes out."""
    read = value_bytes(graph, [value.name for value in graph.inputs], size)
    return read, value_bytes(graph, graph.outputs, size)


@dataclass(frozen=True, slots=True, kw_only=True)
class Heaviest:
    """The op that most of the arithmetic is in."""

    kind: str
    dims: tuple[int, ...]
    """Of what it makes."""
    item_bytes: int
    """Of one number of that."""


def heaviest(graph: Graph, size: Size, ops: Sequence[str] | None = None) -> Heaviest:
    """Of these ops, or of all."""
    count = _Counter(graph, size)
    those = graph.ops if ops is None else [graph.by_name[name] for name in ops]
    op = max(those, key=count.flops)
    made = op.outputs[0]
    dims = count.shape(made)
    return Heaviest(
        kind=op.kind, dims=dims, item_bytes=count.bytes(made) // max(1, count.elements(made))
    )


class _Counter:
    def __init__(self, graph: Graph, size: Size) -> None:
        self._graph, self._size = graph, size

    def shape(self, value: str) -> tuple[int, ...]:
        """Sizes that ops read are no tensors: nothing."""
        known = self._graph.values.get(value)
        return (0,) if known is None else tuple(map(self._size, known.shape))

    def elements(self, value: str) -> int:
        return prod(self.shape(value))

    def bytes(self, value: str) -> int:
        known = self._graph.values.get(value)
        if known is None:
            return 0
        return self.elements(value) * (1 if known.dtype in ONE_BYTE else BYTES.get(known.dtype, 4))

    def touched(self, op: Op) -> Iterator[tuple[str, int]]:
        """Each value that it reads or writes, and how many bytes of it."""
        found_bytes = sum(map(self.bytes, op.outputs))
        for place, value in enumerate((*op.operands, *op.outputs)):
            is_table = op.kind == kinds.LOOKUP and place == 0
            yield value, min(self.bytes(value), found_bytes) if is_table else self.bytes(value)

    def flops(self, op: Op) -> int:
        made = sum(map(self.elements, op.outputs))
        shapes = [self.shape(operand) for operand in op.operands]
        matrices = [shape for shape in shapes if len(shape) > 1]
        if op.kind in (kinds.LINEAR, kinds.MATMUL) and matrices:
            return 2 * made * matrices[0][-1]
        if op.kind == kinds.CONV and len(matrices) > 1:
            weight = matrices[1]
            spread = prod(matrices[0]) if TRANSPOSED.search(op.form) else made
            return 2 * spread * prod(weight[1:])
        if op.kind == kinds.RECURRENT and len(matrices) > 1:
            return 2 * prod(matrices[0][:-1]) * sum(prod(m) for m in matrices[1:] if len(m) == 2)
        if op.kind == kinds.ATTENTION and len(matrices) > 1:
            return 4 * prod(matrices[0]) * matrices[1][-2]
        return made
