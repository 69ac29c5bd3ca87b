"""Which values of a region have a row for each sample, and the proof that samples do not mix.

The region is run at two numbers of rows: what grows with them is divided, along the dimension that
grows. Then every node must be known to keep rows apart. Must not know engines.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from onnx import NodeProto

from gearshift.act.lower.anatomy import Anatomy, Undivided, anatomy
from gearshift.act.lower.independence import Axis, Look, is_independent, reads
from gearshift.act.samples import resized
from gearshift.capture.program import Fragment
from gearshift.errors import CaptureError

FEW, MORE = 2, 3
FILLS = ("ConstantOfShape", "Expand")
SIZE_SLOTS = {"Reshape": (1,), "Expand": (1,), "ConstantOfShape": (0,)}
"""Inputs that only say how large a result is."""
PICKS = (
    *("Cast", "Concat", "Gather", "Identity", "Mul", "Reshape", "Shape", "Size", "Slice"),
    *("Squeeze", "Unsqueeze"),
)
"""What they make of sizes that is the same at two numbers of rows is so at any."""
SOME_ROWS = (*range(1, 18), 31, 32, 33, 64)


@dataclass(frozen=True, slots=True, kw_only=True)
class Rows:
    symbol: str
    """The size that counts them."""
    axes: Mapping[str, Axis]
    """Of the region's inputs and outputs, those that are divided."""


def rows_of(fragment: Fragment, ops: Sequence[str]) -> Rows:
    """Raises Undivided, with the reason. Found out once for the same ops."""
    assert fragment.onnx is not None
    known = fragment.onnx.proofs
    if tuple(ops) not in known:
        try:
            known[tuple(ops)] = _rows_of(fragment, ops)
        except Undivided as reason:
            known[tuple(ops)] = reason
        except (LookupError, ValueError) as odd:  # a node unlike those the rules were written for
            known[tuple(ops)] = Undivided(f"not understood: {odd!r}")
    found = known[tuple(ops)]
    if isinstance(found, Undivided):
        raise found
    return found


def _rows_of(fragment: Fragment, ops: Sequence[str]) -> Rows:
    """By the first size that proves to count rows; else the first one's reason why not."""
    reasons = []
    for symbol in row_symbols(fragment):
        try:
            return _rows_by(symbol, fragment, ops)
        except Undivided as reason:
            reasons.append(reason)
    raise reasons[0] if reasons else Undivided("the batch size is fixed")


def _rows_by(symbol: str, fragment: Fragment, ops: Sequence[str]) -> Rows:
    low, _ = fragment.sizes.ranges.get(symbol, (0, 0))
    if low > FEW:
        raise Undivided(f"the batch size is at least {low}")
    _refuse_steps(fragment, symbol)
    few, more = (_at(fragment, ops, symbol, num_rows) for num_rows in (FEW, MORE))
    look = _look(few, more)
    sizes = {name for name in few.constants if _differs(name, few, more)}
    for node in few.nodes:
        _check(node, look, sizes, few, more)
    axes = {name: look.axes[o] for name, o in few.names.items() if o in look.axes}
    if not axes:
        raise Undivided("nothing in it grows with the batch")
    if sizes.intersection(few.outputs):
        raise Undivided("a result depends on the number of rows")
    return Rows(symbol=symbol, axes=axes)


def _refuse_steps(fragment: Fragment, symbol: str) -> None:
    """Sizes that ops read grow in step with the rows, or not at all: `batch // 8` does neither."""
    bound = fragment.sizes.bind(fragment.example)
    counts = sorted({*SOME_ROWS, bound[symbol]})
    try:
        tables = [fragment.size_numbers({**bound, symbol: count}) for count in counts]
    except CaptureError as odd:
        raise Undivided(str(odd)) from None
    for name, text in fragment.size_values.items():
        numbers = [table[name] for table in tables]
        in_step = all(n == numbers[0] * count for n, count in zip(numbers, counts, strict=True))
        if not in_step and len(set(numbers)) > 1:
            raise Undivided(f"the size {text} does not grow in step with the batch")


def _at(fragment: Fragment, ops: Sequence[str], symbol: str, num_rows: int) -> Anatomy:
    leaves = [resized(fragment, i, {symbol: num_rows}) for i in range(len(fragment.leaves))]
    return anatomy(fragment, ops, leaves)


def row_symbols(fragment: Fragment) -> list[str]:
    """The sizes that may count rows: first sizes of the tensors that are given, then their
    second ones, and so on."""
    shapes = [leaf.shape for leaf in fragment.leaves]
    places = range(max(map(len, shapes), default=0))
    sizes = [shape[place] for place in places for shape in shapes if place < len(shape)]
    return [s for s in dict.fromkeys(sizes) if isinstance(s, str) and s in fragment.sizes.reads]


def _look(few: Anatomy, more: Anatomy) -> Look:
    found = {name: _axis(name, shape, more.shapes[name]) for name, shape in few.shapes.items()}
    axes = {name: axis for name, axis in found.items() if axis is not None}
    return Look(shapes=few.shapes, arrays=few.settled, axes=axes)


def _axis(name: str, few: tuple[int, ...], more: tuple[int, ...]) -> Axis | None:
    if few == more:
        return None
    differ = [i for i, (a, b) in enumerate(zip(few, more, strict=False)) if a != b]
    if len(few) != len(more) or len(differ) != 1:
        raise Undivided(f"{name} grows with the batch in several dimensions")
    (index,) = differ
    unit, rest = divmod(few[index], FEW)
    if rest or unit * MORE != more[index]:
        raise Undivided(f"{name} does not grow in step with the batch")
    return Axis(index, unit)


def _differs(name: str, few: Anatomy, more: Anatomy) -> bool:
    """Not the same numbers: it tells how many rows there are."""
    one, other = few.small.get(name), more.small.get(name)
    if one is None or other is None or one.shape != other.shape:
        return False
    return not np.array_equal(one, other)


def _check(node: NodeProto, look: Look, sizes: set[str], few: Anatomy, more: Anatomy) -> None:
    """Adds to `sizes` what is computed from them."""
    inputs = reads(node)
    outputs = [name for name in node.output if name]
    divided = [name for name in inputs if name in look.axes]
    told = {n for i, n in enumerate(inputs) if i not in SIZE_SLOTS.get(node.op_type, ())}
    counts = sizes & told
    grown = [name for name in outputs if name in look.axes]
    if not grown:
        if divided and node.op_type not in ("Shape", "Size"):
            raise Undivided(f"{node.op_type} gives something of all rows together")
        if divided or sizes.intersection(inputs):
            plain = node.op_type in PICKS
            known = {n for n in outputs if plain and n in few.small and not _differs(n, few, more)}
            sizes.update(n for n in outputs if n not in known)
        return
    if counts:
        raise Undivided(f"{node.op_type} computes with the number of rows")
    if len(grown) < len(outputs):
        raise Undivided(f"{node.op_type} gives something of all rows together")
    if not divided:
        if node.op_type not in FILLS or not _fills(node, look):
            raise Undivided(f"{node.op_type} makes rows that may differ")
    elif not is_independent(node, look):
        raise Undivided(f"{node.op_type} may mix rows")


def _fills(node: NodeProto, look: Look) -> bool:
    """Every row alike."""
    place = look.from_right(node.output[0])
    assert place is not None
    return node.op_type == "ConstantOfShape" or not look.spans(node.input[0], place)
