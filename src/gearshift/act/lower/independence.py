"""Whether each row of a node's results comes from that row of its inputs alone.

Written once, for ONNX nodes: what comes from torch has that form, too. What is not listed is
denied. Must not know how a region is divided.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from math import prod
from typing import Any

import numpy as np
from onnx import NodeProto

from gearshift.act.lower.anatomy import attributes

INT_MAX = 2**31 - 1


@dataclass(frozen=True, slots=True)
class Axis:
    """Along which dimension a value is divided, and how many of its entries make one row."""

    index: int
    unit: int = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Look:
    """What is known of the values of a region: their shapes, what they hold if that is little, and
    which of them are divided; the others are the same for each row."""

    shapes: Mapping[str, tuple[int, ...]]
    arrays: Mapping[str, np.ndarray]
    axes: Mapping[str, Axis]

    def axis(self, name: str) -> int | None:
        found = self.axes.get(name)
        return None if found is None else found.index

    def rank(self, name: str) -> int:
        return len(self.shapes[name])

    def from_right(self, name: str) -> int | None:
        """The divided dimension counted from the last one, which is 1."""
        axis = self.axis(name)
        return None if axis is None else self.rank(name) - axis

    def spans(self, name: str, from_right: int) -> bool:
        """Whether it has more than one entry there, so that it cannot be the same for each row."""
        place = self.rank(name) - from_right
        return place >= 0 and self.shapes[name][place] != 1

    def numbers(self, name: str) -> list[int] | None:
        array = self.arrays.get(name)
        return None if array is None else [int(number) for number in array.reshape(-1)]


Rule = Callable[[NodeProto, Look], bool]


def is_independent(node: NodeProto, look: Look) -> bool:
    """Of a node that takes something divided, and gives only what is divided."""
    rule = RULES.get(node.op_type)
    return not node.domain and rule is not None and rule(node, look)


def reads(node: NodeProto) -> list[str]:
    """What its results depend on; CastLike asks its second input for the type only."""
    names = node.input[:1] if node.op_type == "CastLike" else node.input
    return [name for name in names if name]


def _all_at(names: Sequence[str], axis: int, look: Look) -> bool:
    return all(look.axis(name) == axis for name in names if name)


def _only_first(node: NodeProto, look: Look) -> bool:
    return look.axis(node.input[0]) is not None and all(
        look.axis(name) is None for name in reads(node)[1:]
    )


def pointwise(node: NodeProto, look: Look) -> bool:
    """Broadcast from the right: what is divided is so at the same place, the rest has one entry."""
    place = look.from_right(node.output[0])
    if place is None:
        return False
    for name in reads(node):
        own = look.from_right(name)
        if own != place and (own is not None or look.spans(name, place)):
            return False
    return True


def first_dimension(node: NodeProto, look: Look) -> bool:
    """Samples one by one; MaxPool's second result counts positions across samples."""
    outputs = [name for name in node.output if name]
    if node.op_type == "MaxPool" and len(outputs) > 1:
        return False
    return _only_first(node, look) and _all_at([node.input[0], *outputs], 0, look)


def matmul(node: NodeProto, look: Look) -> bool:
    left, right = node.input
    if min(look.rank(left), look.rank(right)) < 2:
        return False
    a, b = look.from_right(left), look.from_right(right)
    if a == 1 or b == 2:  # summed over
        return False
    if a is not None and b is not None:
        place, alike = a, a == b and a > 2
    elif a is not None:
        place, alike = a, a == 2 or not look.spans(right, a)
    else:
        assert b is not None
        place, alike = b, b == 1 or not look.spans(left, b)
    return alike and look.from_right(node.output[0]) == place


def gemm(node: NodeProto, look: Look) -> bool:
    turned = bool(attributes(node).get("transA", 0))
    if not _only_first(node, look) or look.axis(node.input[0]) != int(turned):
        return False
    bias = node.input[2] if len(node.input) > 2 else ""
    return look.axis(node.output[0]) == 0 and not (bias and look.spans(bias, 2))


def normalises_after(node: NodeProto, look: Look) -> bool:
    rank, axis = look.rank(node.input[0]), look.axis(node.input[0])
    first = attributes(node).get("axis", -1) % rank
    outputs = [name for name in node.output if name]
    return (
        _only_first(node, look)
        and axis is not None
        and axis < first
        and all(look.axis(name) == axis for name in outputs)
    )


def along(default: int) -> Rule:
    """Works along one dimension, and keeps all."""

    def rule(node: NodeProto, look: Look) -> bool:
        axis = look.axis(node.input[0])
        other = attributes(node).get("axis", default) % look.rank(node.input[0])
        outputs = [name for name in node.output if name]
        return (
            _only_first(node, look)
            and axis != other
            and all(look.axis(name) == axis for name in outputs)
        )

    return rule


def cumulative(node: NodeProto, look: Look) -> bool:
    numbers = look.numbers(node.input[1])
    axis = look.axis(node.input[0])
    return (
        _only_first(node, look)
        and numbers is not None
        and numbers[0] % look.rank(node.input[0]) != axis
        and look.axis(node.output[0]) == axis
    )


def transpose(node: NodeProto, look: Look) -> bool:
    rank = look.rank(node.input[0])
    order = list(attributes(node).get("perm", range(rank - 1, -1, -1)))
    axis = look.axis(node.input[0])
    return axis is not None and look.axis(node.output[0]) == order.index(axis)


def same_order(node: NodeProto, look: Look) -> bool:
    """Entries stay in order: a row's stay together if as many lie before it."""
    before, after = look.axis(node.input[0]), look.axis(node.output[0])
    if before is None or after is None or any(look.axis(n) is not None for n in node.input[1:]):
        return False
    shape, new = look.shapes[node.input[0]], look.shapes[node.output[0]]
    return prod(shape[:before]) == prod(new[:after])


def expand(node: NodeProto, look: Look) -> bool:
    return _only_first(node, look) and (
        look.from_right(node.input[0]) == look.from_right(node.output[0])
    )


def joins(node: NodeProto, look: Look) -> bool:
    axis = look.axis(node.output[0])
    along = attributes(node)["axis"] % look.rank(node.output[0])
    return axis is not None and axis != along and _all_at(reads(node), axis, look)


def slices(node: NodeProto, look: Look) -> bool:
    rank, axis = look.rank(node.input[0]), look.axis(node.input[0])
    given = [look.numbers(name) if name else None for name in node.input[1:]]
    starts, ends, axes, steps = (*given, None, None)[:4]
    if starts is None or ends is None:
        return False
    where = list(range(len(starts))) if axes is None else [a % rank for a in axes]
    strides = [1] * len(starts) if steps is None else steps
    for start, end, place, stride in zip(starts, ends, where, strides, strict=True):
        if place == axis and not (start == 0 and end >= INT_MAX and stride == 1):
            return False
    return _only_first(node, look) and look.axis(node.output[0]) == axis


def gather(node: NodeProto, look: Look) -> bool:
    """By rows of indices from a table; or, for each row, the same entries."""
    data, index = node.input
    along = attributes(node).get("axis", 0) % look.rank(data)
    held, by = look.axis(data), look.axis(index)
    out = look.axis(node.output[0])
    if held is None and by is not None:
        return out == along + by
    if held is None or by is not None or held == along:
        return False
    return out == (held if held < along else held + look.rank(index) - 1)


def gather_elements(node: NodeProto, look: Look) -> bool:
    axis = look.axis(node.input[0])
    along = attributes(node).get("axis", 0) % look.rank(node.input[0])
    return axis is not None and axis != along and _all_at([*node.input, node.output[0]], axis, look)


def reduces(node: NodeProto, look: Look) -> bool:
    rank, axis, told = look.rank(node.input[0]), look.axis(node.input[0]), attributes(node)
    given: Any = told.get("axes")
    if len(node.input) > 1 and node.input[1]:
        given = look.numbers(node.input[1])
    if node.op_type in ("ArgMax", "ArgMin"):
        given = [told.get("axis", 0)]
    if not given or axis is None or not _only_first(node, look):
        return False
    over = {place % rank for place in given}
    gone = 0 if told.get("keepdims", 1) else sum(place < axis for place in over)
    return axis not in over and look.axis(node.output[0]) == axis - gone


def pads(node: NodeProto, look: Look) -> bool:
    axis, numbers = look.axis(node.input[0]), look.numbers(node.input[1])
    if axis is None or numbers is None or (len(node.input) > 3 and node.input[3]):
        return False
    added = numbers[axis], numbers[axis + look.rank(node.input[0])]
    return _only_first(node, look) and added == (0, 0) and look.axis(node.output[0]) == axis


def triangle(node: NodeProto, look: Look) -> bool:
    axis = look.axis(node.input[0])
    return (
        axis is not None
        and _only_first(node, look)
        and (axis < look.rank(node.input[0]) - 2 and look.axis(node.output[0]) == axis)
    )


def recurrent(node: NodeProto, look: Look) -> bool:
    """Inputs are [steps, rows, features], states [directions, rows, features]."""
    if attributes(node).get("layout", 0):
        return False
    slots = [*node.input, *[""] * (8 - len(node.input))]
    first, *weights, lengths, hidden, cell, peephole = slots
    outputs = [*node.output, "", ""][:3]
    return (
        _all_at([first, hidden, cell], 1, look)
        and all(look.axis(name) is None for name in (*weights, peephole) if name)
        and _all_at([lengths], 0, look)
        and _all_at([outputs[0]], 2, look)
        and _all_at(outputs[1:], 1, look)
    )


_RULES: dict[Rule, str] = {
    pointwise: "Abs Add And BitwiseAnd BitwiseNot BitwiseOr BitwiseXor Cast CastLike Ceil"
    " Celu Clip Cos Div Elu Equal Erf Exp Floor Gelu Greater GreaterOrEqual HardSigmoid HardSwish"
    " Identity IsInf IsNaN LeakyRelu Less LessOrEqual Log Max Min Mish Mod Mul Neg Not Or PRelu"
    " Pow Reciprocal Relu Round Selu Sigmoid Sign Sin Softplus Softsign Sqrt Sub Sum Swish Tan Tanh"
    " ThresholdedRelu Where Xor",
    first_dimension: "AveragePool BatchNormalization Conv ConvTranspose GlobalAveragePool"
    " GlobalMaxPool GroupNormalization InstanceNormalization LRN LpPool MaxPool",
    matmul: "MatMul",
    gemm: "Gemm",
    normalises_after: "LayerNormalization RMSNormalization",
    along(-1): "Softmax LogSoftmax Hardmax LpNormalization TopK",
    along(0): "Split",
    cumulative: "CumSum",
    transpose: "Transpose",
    same_order: "Flatten Reshape Squeeze Unsqueeze",
    expand: "Expand",
    joins: "Concat",
    slices: "Slice",
    gather: "Gather",
    gather_elements: "GatherElements",
    reduces: "ArgMax ArgMin ReduceL1 ReduceL2 ReduceLogSum ReduceLogSumExp ReduceMax ReduceMean"
    " ReduceMin ReduceProd ReduceSum ReduceSumSquare",
    pads: "Pad",
    triangle: "Trilu",
    recurrent: "GRU LSTM RNN",
}
RULES: dict[str, Rule] = {name: rule for rule, names in _RULES.items() for name in names.split()}
