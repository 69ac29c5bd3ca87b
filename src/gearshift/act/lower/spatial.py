"""A region of images divided over their height: each part computes some rows of the results, from
those rows of the inputs it needs for them. Parts overlap where a kernel reaches over the border.

Must not know engines. From the results backwards: which rows of each value does a part need?
"""

from collections.abc import Sequence
from dataclasses import dataclass

from onnx import NodeProto

from gearshift.act.lower.anatomy import Anatomy, Undivided, attributes
from gearshift.act.lower.independence import RULES, Look, pointwise
from gearshift.act.lower.part import Beside, Join, PartBody, Piece
from gearshift.act.lower.shares import in_a_row
from gearshift.plan.split import apportioned

HEIGHT = 2
ALONG_CHANNELS = ("Concat", "Split", "Softmax", "LogSoftmax")


@dataclass(frozen=True, slots=True)
class Kernel:
    """How a result's rows come from an input's: row r reads from r * stride - before, `reach`
    rows."""

    stride: int = 1
    before: int = 0
    reach: int = 1

    def needs(self, rows: range, height: int) -> tuple[range, int, int]:
        """The rows of the input, and how many are missing above and below, where it ends."""
        first = rows.start * self.stride - self.before
        end = (rows.stop - 1) * self.stride - self.before + self.reach
        inside = range(max(0, first), min(height, end))
        return inside, inside.start - first, end - inside.stop


def kernel_of(node: NodeProto, whole: Anatomy) -> Kernel | None:
    """None if it has none."""
    told = attributes(node)
    if node.op_type == "Conv":
        size = whole.shapes[node.input[1]][2]
    elif node.op_type in ("MaxPool", "AveragePool"):
        size = told["kernel_shape"][0]
        if told.get("ceil_mode", 0) or len([o for o in node.output if o]) > 1:
            raise Undivided(f"{node.op_type} rounds up, or tells positions")
        if told.get("count_include_pad", 0) and any(told.get("pads", [])):
            raise Undivided("AveragePool counts what is beyond the border")
    else:
        return None
    if told.get("auto_pad", b"NOTSET") not in (b"NOTSET", "NOTSET"):
        raise Undivided(f"{node.op_type} pads by itself")
    dilation = told.get("dilations", [1])[0]
    before = told.get("pads", [0])[0]
    return Kernel(told.get("strides", [1])[0], before, dilation * (size - 1) + 1)


def spatial_parts(
    whole: Anatomy, shares: Sequence[int]
) -> tuple[list[tuple[PartBody, list[str]]], list[Join], list[int]]:
    """For each share a part, with the names of its results; and how many rows of the first it
    has."""
    heights = [_height(name, whole) for name in whole.outputs]
    slow = [1 / share if share else float("inf") for share in shares]
    counts = [apportioned(height, slow) for height in heights]
    if any(0 in count for count in counts):
        raise Undivided("there are fewer rows than engines")
    parts = []
    for member in range(len(shares)):
        pairs = zip(whole.outputs, counts, strict=True)
        parts.append(_part(whole, {name: in_a_row(count)[member] for name, count in pairs}))
    return parts, [Beside(HEIGHT, tuple(in_a_row(count))) for count in counts], counts[0]


def _height(name: str, whole: Anatomy) -> int:
    """Of images, and of signals of one dimension their length."""
    shape = whole.shapes[name]
    if len(shape) not in (3, 4):
        raise Undivided(f"{name} is no image: {list(shape)}")
    return shape[HEIGHT]


def _part(whole: Anatomy, wanted: dict[str, range]) -> tuple[PartBody, list[str]]:
    rows = dict(wanted)
    for node in reversed(whole.nodes):
        for name, needed in _needs(node, whole, rows).items():
            rows[name] = _both(rows.get(name), needed)
    body = PartBody(whole)
    for name in whole.inputs:
        if name in rows and len(rows[name]) < whole.shapes[name][HEIGHT]:
            body.takes[name] = Piece(HEIGHT, rows[name])
    for node in whole.nodes:
        if any(name in rows for name in node.output):
            _add(body, node, whole, rows)
    results = [_exactly(body, name, rows, wanted[name]) for name in whole.outputs]
    body.check()
    return body, results


def _needs(node: NodeProto, whole: Anatomy, rows: dict[str, range]) -> dict[str, range]:
    """Which rows of its inputs, by name; those that are no images are taken whole."""
    found = [rows[name] for name in node.output if name in rows]
    if not found:
        return {}
    wanted = found[0]
    for more in found[1:]:
        wanted = _both(wanted, more)
    kernel = kernel_of(node, whole)
    if kernel is not None:
        image = node.input[0]
        inside = kernel.needs(wanted, _height(image, whole))[0]
        if not inside:
            raise Undivided(
                f"a part of {node.op_type} would read nothing but what is beyond the border"
            )
        return {image: inside}
    images = _images(node, whole)
    return dict.fromkeys(images, wanted)


def _images(node: NodeProto, whole: Anatomy) -> list[str]:
    """The inputs that have the same rows as the result; nothing else may depend on rows."""
    height = _height(node.output[0], whole)
    if node.op_type == "BatchNormalization":
        return [node.input[0]]
    if node.op_type in ALONG_CHANNELS:
        rank = len(whole.shapes[node.output[0]])
        if attributes(node).get("axis", -1) % rank == HEIGHT:
            raise Undivided(f"{node.op_type} works over the height")
        images = [name for name in node.input if name and len(whole.shapes[name]) == rank]
        if any(name in whole.constants for name in images):
            raise Undivided(f"{node.op_type} takes an image that is a constant")
        return images
    if node.op_type == "Slice" and len(node.input) > 3:
        given = whole.settled.get(node.input[3])
        rank = len(whole.shapes[node.output[0]])
        if given is None or HEIGHT in given.reshape(-1) % rank:
            raise Undivided("Slice takes a part of the height")
        return [node.input[0]]
    if RULES.get(node.op_type) is not pointwise:
        raise Undivided(f"{node.op_type} is not known to keep the height")
    look = Look(shapes=whole.shapes, arrays={}, axes={})
    rank = len(whole.shapes[node.output[0]])
    tall = [name for name in node.input if name and look.spans(name, rank - HEIGHT)]
    odd = [n for n in tall if n in whole.constants or len(whole.shapes[n]) != rank]
    if odd or any(whole.shapes[name][HEIGHT] != height for name in tall):
        raise Undivided(f"{node.op_type} takes something of another height")
    return tall


def _both(one: range | None, other: range) -> range:
    if one is None:
        return other
    return range(min(one.start, other.start), max(one.stop, other.stop))


def _add(body: PartBody, node: NodeProto, whole: Anatomy, rows: dict[str, range]) -> None:
    """What it makes are the rows that are needed of it; all its results have the same."""
    wanted = [rows[name] for name in node.output if name in rows]
    made = wanted[0]
    for more in wanted[1:]:
        made = _both(made, more)
    for name in node.output:
        if name:
            rows[name] = made
    kernel = kernel_of(node, whole)
    if kernel is None:
        images = _images(node, whole)
        taken = [
            _exactly(body, name, rows, made) if name in images else name for name in node.input
        ]
        body.add(node, taken)
        return
    image = node.input[0]
    needed, above, below = kernel.needs(made, _height(image, whole))
    dimensions = len(whole.shapes[image]) - HEIGHT
    pads = list(attributes(node).get("pads", [0] * (2 * dimensions)))
    pads[0], pads[dimensions] = above, below
    body.add(node, [_exactly(body, image, rows, needed), *node.input[1:]], pads=pads)


def _exactly(body: PartBody, name: str, rows: dict[str, range], wanted: range) -> str:
    """The value's rows that are wanted; it may have more."""
    have = rows[name]
    if have == wanted:
        return name
    first = wanted.start - have.start
    return body.sliced(name, HEIGHT, range(first, first + len(wanted)))
