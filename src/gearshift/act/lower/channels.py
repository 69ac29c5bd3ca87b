"""A region divided over channels: each part computes some columns of a product from all of its
inputs (`columns`), or all of them from some of the inputs' channels (`depth`), to be summed up.

Must not know engines. Forwards: a value is whole, or divided along a dimension, or a part of a sum.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
from onnx import NodeProto

from gearshift.act.lower.anatomy import Anatomy, Undivided, attributes
from gearshift.act.lower.independence import RULES, pointwise
from gearshift.act.lower.part import Beside, Join, PartBody, Piece, Summed
from gearshift.act.lower.shares import in_a_row
from gearshift.plan.split import apportioned

PRODUCTS = ("Conv", "Gemm", "MatMul")
POOLS = ("AveragePool", "GlobalAveragePool", "GlobalMaxPool", "MaxPool")
NORMS = ("BatchNormalization",)
PARTIAL = -1
"""In place of a dimension: the value is one part of a sum."""


@dataclass(slots=True)
class Walk:
    """One part on its way through the region."""

    body: PartBody
    columns: tuple[int, ...]
    """The channels that are this part's."""
    first: bool
    """What is to be added to a sum once is added by the first part."""
    along: dict[str, int] = field(default_factory=dict)
    """For each value that is not whole, the dimension it is divided along."""
    starts: bool = True
    """Whether a product of whole values is divided; only the first one is."""

    @property
    def whole(self) -> Anatomy:
        return self.body.anatomy

    def piece(self, name: str, axis: int) -> str:
        """A value's share of the channels."""
        if name not in self.whole.constants:
            return self.body.picked(name, axis, self.columns)
        return self.body.constant(
            f"{name}__mine_{axis}", Piece(axis, self.columns).of_array(self.whole.constants[name])
        )


def column_entries(whole: Anatomy, shares: Sequence[int], block: int) -> list[tuple[int, ...]]:
    """Blocks of so many columns, dealt to the engines in turn, as often as its share says."""
    count = _num_columns(whole)
    turns = [member for member, share in enumerate(shares) for _ in range(share)]
    blocks = [range(first, min(first + block, count)) for first in range(0, count, block)]
    mine: list[list[int]] = [[] for _ in shares]
    for number, columns in enumerate(blocks):
        mine[turns[number % len(turns)]].extend(columns)
    if not all(mine):
        raise Undivided(f"{count} columns in blocks of {block} do not reach for all engines")
    return [tuple(columns) for columns in mine]


def _num_columns(whole: Anatomy) -> int:
    for node in whole.nodes:
        if node.op_type in PRODUCTS and node.output[0] not in whole.constants:
            shape = whole.shapes[node.output[0]]
            return shape[1] if node.op_type == "Conv" else shape[-1]
    raise Undivided("there is no product in it")


def column_parts(
    whole: Anatomy, entries: Sequence[tuple[int, ...]]
) -> tuple[list[tuple[PartBody, list[str]]], list[Join], list[int]]:
    walks = [
        Walk(PartBody(whole), columns, first=number == 0) for number, columns in enumerate(entries)
    ]
    return _walked(walks, entries)


def depth_parts(
    whole: Anatomy, shares: Sequence[int]
) -> tuple[list[tuple[PartBody, list[str]]], list[Join], list[int]]:
    """The channels of the inputs in a row, as many to each as its share says."""
    rights = _rights(whole)
    axes = {n: rights[n] if n in rights else _channel_axis(n, whole) for n in whole.inputs}
    counts = {whole.shapes[name][axis] for name, axis in axes.items()}
    if len(counts) != 1:
        raise Undivided(f"its inputs have different numbers of channels: {sorted(counts)}")
    (count,) = counts
    slow = [1 / share if share else float("inf") for share in shares]
    ranges = in_a_row(apportioned(count, slow))
    if not all(ranges):
        raise Undivided("there are fewer channels than engines")
    walks = []
    for number, mine in enumerate(ranges):
        walk = Walk(PartBody(whole), tuple(mine), first=number == 0, starts=False)
        walk.along.update(axes)
        walk.body.takes.update({name: Piece(axis, mine) for name, axis in axes.items()})
        walks.append(walk)
    return _walked(walks, [tuple(mine) for mine in ranges])


def _rights(whole: Anatomy) -> dict[str, int]:
    """Where inputs that stand on the right of a product have what is summed over."""
    names = [node.input[1] for node in whole.nodes if node.op_type == "MatMul"]
    axes = {name: len(whole.shapes[name]) - 2 for name in names if name in whole.inputs}
    return {name: axis for name, axis in axes.items() if axis >= 0}


def _channel_axis(name: str, whole: Anatomy) -> int:
    """Of images the second dimension, of anything else the last."""
    rank = len(whole.shapes[name])
    if rank < 2:
        raise Undivided(f"{name} has no channels")
    images = any(node.op_type in ("Conv", *POOLS, *NORMS) for node in whole.nodes)
    return 1 if images else rank - 1


def _walked(
    walks: Sequence[Walk], entries: Sequence[tuple[int, ...]]
) -> tuple[list[tuple[PartBody, list[str]]], list[Join], list[int]]:
    for walk in walks:
        for node in walk.whole.nodes:
            _step(walk, node)
    whole, along = walks[0].whole, walks[0].along
    joins = [_join(along.get(name), entries, name) for name in whole.outputs]
    for walk in walks:
        walk.body.check()
    bodies = [(walk.body, list(whole.outputs)) for walk in walks]
    return bodies, joins, [len(walk.columns) for walk in walks]


def _join(axis: int | None, entries: Sequence[tuple[int, ...]], name: str) -> Join:
    if axis is None:
        raise Undivided(f"every part would compute all of {name}")
    return Summed() if axis == PARTIAL else Beside(axis, tuple(map(_tidy, entries)))


def _tidy(entries: tuple[int, ...]) -> range | tuple[int, ...]:
    """A range, where they are in a row."""
    row = range(entries[0], entries[-1] + 1)
    return row if entries == tuple(row) else entries


def _step(walk: Walk, node: NodeProto) -> None:
    if all(name in walk.whole.constants for name in node.output):
        return
    held = [name for name in node.input if name in walk.along]
    if any(walk.along[name] == PARTIAL for name in held):
        _add_to_sum(walk, node)
    elif node.op_type in PRODUCTS:
        _product(walk, node)
    elif not held:
        walk.body.add(node)
    elif node.op_type in NORMS:
        _norm(walk, node)
    elif node.op_type in POOLS and walk.along[node.input[0]] == 1:
        _keep(walk, node, list(node.input), 1)
    elif RULES.get(node.op_type) is pointwise:
        _pointwise(walk, node)
    else:
        raise Undivided(f"{node.op_type} is not known to keep channels apart")


def _keep(walk: Walk, node: NodeProto, inputs: Sequence[str], axis: int) -> None:
    if len([name for name in node.output if name]) > 1:
        raise Undivided(f"{node.op_type} gives more than channels")
    walk.body.add(node, inputs)
    walk.along[node.output[0]] = axis


def _add_to_sum(walk: Walk, node: NodeProto) -> None:
    """A bias is added once; nothing else may happen to a part of a sum."""
    parts = [name for name in node.input if walk.along.get(name) == PARTIAL]
    bias = [name for name in node.input if name not in parts]
    if node.op_type == "Identity":
        walk.body.add(node)
    elif node.op_type != "Add" or len(parts) != 1 or bias[0] not in walk.whole.constants:
        raise Undivided(f"{node.op_type} needs the whole sum")
    elif walk.first:
        walk.body.add(node)
    else:
        zero = np.zeros_like(walk.whole.constants[bias[0]])
        nothing = walk.body.constant(f"{bias[0]}__zero", zero)
        walk.body.add(node, [n if n in parts else nothing for n in node.input])
    walk.along[node.output[0]] = PARTIAL


def _product(walk: Walk, node: NodeProto) -> None:
    left, right = node.input[0], node.input[1]
    axis = walk.along.get(left)
    weighed = right in walk.whole.constants
    if attributes(node).get("transA", 0) or (not weighed and node.op_type != "MatMul"):
        raise Undivided(f"{node.op_type} of something else than a value and a weight")
    if right in walk.along:
        _both_summed_over(walk, node)
    elif axis is None:
        if not walk.starts:
            walk.body.add(node)
            return
        walk.starts = False
        _columns(walk, node)
    elif node.op_type == "Conv":
        _conv_of_channels(walk, node)
    elif not weighed:
        raise Undivided(f"{node.op_type} of something divided and something that is whole")
    elif axis == len(walk.whole.shapes[left]) - 1:
        _depth(walk, node, int(bool(attributes(node).get("transB", 0))))
    else:
        raise Undivided(f"{node.op_type} of something divided along dimension {axis}")


def _both_summed_over(walk: Walk, node: NodeProto) -> None:
    """Two computed values, both divided along what is summed over: a part of a sum."""
    left, right = node.input[0], node.input[1]
    ends = len(walk.whole.shapes[left]) - 1, len(walk.whole.shapes[right]) - 2
    if (walk.along.get(left), walk.along[right]) != ends:
        raise Undivided(f"{node.op_type} of values divided along different dimensions")
    walk.body.add(node)
    walk.along[node.output[0]] = PARTIAL


def _columns(walk: Walk, node: NodeProto) -> None:
    """Some of its columns, from all of its inputs."""
    told, right = attributes(node), node.input[1]
    rank = len(walk.whole.shapes[right])
    if node.op_type == "Conv":
        if told.get("group", 1) != 1:
            raise Undivided("a convolution in groups does not begin a division")
        axis = 0
    elif rank < 2:
        raise Undivided("a product with a vector has no columns")
    else:
        axis = 0 if told.get("transB", 0) else rank - 1
    inputs = [node.input[0], walk.piece(right, axis)]
    if len(node.input) > 2 and node.input[2]:
        inputs.append(_bias(walk, node.input[2]))
    rank = len(walk.whole.shapes[node.output[0]])
    _keep(walk, node, inputs, 1 if node.op_type == "Conv" else rank - 1)


def _bias(walk: Walk, name: str) -> str:
    shape = walk.whole.shapes[name]
    if name not in walk.whole.constants:
        raise Undivided("a bias that is no weight")
    return name if not shape or shape[-1] == 1 else walk.piece(name, len(shape) - 1)


def _conv_of_channels(walk: Walk, node: NodeProto) -> None:
    """Channel by channel it stays divided; else it is a part of a sum."""
    whole, right = walk.whole, node.input[1]
    group = attributes(node).get("group", 1)
    filters, each = whole.shapes[right][:2]
    if walk.along[node.input[0]] != 1:
        raise Undivided("a convolution of something not divided by channels")
    if group == filters == whole.shapes[node.input[0]][1] and each == 1:
        inputs = [node.input[0], walk.piece(right, 0)]
        if len(node.input) > 2 and node.input[2]:
            inputs.append(walk.piece(node.input[2], 0))
        walk.body.add(node, inputs, group=len(walk.columns))
        walk.along[node.output[0]] = 1
    elif group == 1:
        _depth(walk, node, 1)
    else:
        raise Undivided("a convolution in groups of several channels")


def _depth(walk: Walk, node: NodeProto, axis: int) -> None:
    """From some of its channels: a part of a sum. `axis` is where the weight has them."""
    right = node.input[1]
    rank = len(walk.whole.shapes[right])
    if rank < 2:
        raise Undivided("a product with a vector")
    place = axis if node.op_type != "MatMul" else rank - 2
    inputs = [node.input[0], walk.piece(right, place)]
    if len(node.input) > 2 and node.input[2]:
        bias = node.input[2]
        if bias not in walk.whole.constants:
            raise Undivided("a bias that is no weight")
        zero = np.zeros_like(walk.whole.constants[bias])
        inputs.append(bias if walk.first else walk.body.constant(f"{bias}__zero", zero))
    walk.body.add(node, inputs)
    walk.along[node.output[0]] = PARTIAL


def _norm(walk: Walk, node: NodeProto) -> None:
    if walk.along[node.input[0]] != 1:
        raise Undivided("a norm of something not divided by channels")
    _keep(walk, node, [node.input[0], *(walk.piece(n, 0) for n in node.input[1:])], 1)


def _pointwise(walk: Walk, node: NodeProto) -> None:
    """Constants are cut where they have a number for each channel; other inputs must be divided
    alike, or the same for all channels."""
    whole = walk.whole
    rank = len(whole.shapes[node.output[0]])
    from_right = {
        len(whole.shapes[name]) - walk.along[name] for name in node.input if name in walk.along
    }
    if len(from_right) != 1:
        raise Undivided(f"{node.op_type} of values divided along different dimensions")
    (place,) = from_right
    inputs = []
    for name in node.input:
        shape = whole.shapes[name] if name else ()
        axis = len(shape) - place
        if not name or name in walk.along or axis < 0 or shape[axis] == 1:
            inputs.append(name)
        elif name in whole.constants:
            inputs.append(walk.piece(name, axis))
        else:
            raise Undivided(f"{node.op_type} takes all channels of {name}")
    _keep(walk, node, inputs, rank - place)
