"""One engine's part of a region that is cut in pieces when it is built: its own ONNX nodes, its own
weights; what it takes of each input, and where its results go.

Must not know how the pieces were chosen.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from math import prod
from typing import Any

import numpy as np
import torch
from onnx import ModelProto, NodeProto, helper, numpy_helper
from torch import Tensor

from gearshift.act.engines.team import Part
from gearshift.act.lower.anatomy import Anatomy, Undivided
from gearshift.capture.onnx_graph import ELEMENT_TYPES, INLINE_BYTES, OnnxBody, external
from gearshift.capture.program import Cut


@dataclass(frozen=True, slots=True)
class Piece:
    """Some entries of a tensor along one dimension."""

    axis: int
    entries: range | tuple[int, ...]

    def of(self, tensor: Tensor) -> Tensor:
        """Of an input, whose entries are always in a row: without a copy."""
        assert isinstance(self.entries, range)
        return tensor.narrow(self.axis, self.entries.start, len(self.entries))

    def of_array(self, array: np.ndarray) -> np.ndarray:
        return np.ascontiguousarray(np.take(array, list(self.entries), self.axis))


@dataclass(slots=True)
class PartBody:
    """Nodes and constants are added; `cut` makes a model of them."""

    anatomy: Anatomy
    nodes: list[NodeProto] = field(default_factory=list)
    pieces: dict[str, np.ndarray] = field(default_factory=dict)
    """Constants of its own, by name."""
    takes: dict[str, Piece] = field(default_factory=dict)
    """What it takes of the region's inputs, if not all."""

    def add(self, node: NodeProto, inputs: Sequence[str] | None = None, **changes: Any) -> None:
        """A copy, with other inputs and some attributes set anew."""
        copy = NodeProto()
        copy.CopyFrom(node)
        if inputs is not None:
            del copy.input[:]
            copy.input.extend(inputs)
        kept = [a for a in copy.attribute if a.name not in changes]
        fresh = [helper.make_attribute(name, value) for name, value in changes.items()]
        del copy.attribute[:]
        copy.attribute.extend([*kept, *fresh])
        self.nodes.append(copy)

    def constant(self, name: str, array: np.ndarray) -> str:
        self.pieces[name] = np.asarray(array, order="C")
        return name

    def sliced(self, name: str, axis: int, rows: range) -> str:
        """A node that takes some entries in a row out of a value."""
        short = f"{name}__{rows.start}_{rows.stop}"
        if not any(short in node.output for node in self.nodes):
            numbers = {"starts": rows.start, "ends": rows.stop, "axes": axis}
            slots = [
                self.constant(f"{short}_{what}", np.array([number], np.int64))
                for what, number in numbers.items()
            ]
            self.nodes.append(helper.make_node("Slice", [name, *slots], [short]))
        return short

    def picked(self, name: str, axis: int, entries: Sequence[int]) -> str:
        """A node that takes some entries out of a value."""
        short = f"{name}__mine_{axis}"
        if not any(short in node.output for node in self.nodes):
            index = self.constant(f"{short}_index", np.array(entries, np.int64))
            self.nodes.append(helper.make_node("Gather", [name, index], [short], axis=axis))
        return short

    def check(self) -> None:
        """Whether all that is read is there: what a rule passed over is denied."""
        whole = self.anatomy
        known = {*whole.inputs, *whole.constants, *self.pieces}
        for node in self.nodes:
            missing = [name for name in node.input if name and name not in known]
            if missing:
                raise Undivided(f"{node.op_type} takes something that no part has all of")
            known.update(node.output)

    def cut(self, outputs: Sequence[str]) -> Cut:
        """`outputs` are what it gives for each output of the region."""
        whole = self.anatomy
        read = {name for node in self.nodes for name in node.input if name} | set(outputs)
        model = ModelProto(ir_version=10, opset_import=whole.body.model.opset_import)
        model.graph.name = "part"
        model.graph.node.extend(self.nodes)
        given = [name for name in whole.inputs if name in read]
        model.graph.input.extend(self._input(name) for name in given)
        model.graph.output.extend(
            helper.make_tensor_value_info(o, ELEMENT_TYPES[whole.dtypes[like]], None)
            for o, like in zip(outputs, whole.outputs, strict=True)
        )
        weights = {n: w for n, w in whole.body.weights.items() if n in read}
        for name in weights:
            array = whole.constants[name]
            model.graph.initializer.append(external(name, str(array.dtype), array.shape))
        arrays = {}
        own = {n: a for n, a in whole.constants.items() if n in read and n not in weights}
        own = {name: np.asarray(array, order="C") for name, array in own.items()}
        for name, array in {**own, **self.pieces}.items():
            if array.nbytes > INLINE_BYTES:
                arrays[name] = array
                model.graph.initializer.append(external(name, str(array.dtype), array.shape))
            else:
                model.graph.initializer.append(numpy_helper.from_array(np.array(array), name))
        names = {o: name for name, o in whole.names.items()}
        return Cut(
            inputs=tuple(names[name] for name in given),
            sizes=(),
            weights=tuple(weights.values()),
            outputs=tuple(names[name] for name in whole.outputs),
            body=OnnxBody(model=model, weights=weights, arrays=arrays),
        )

    def _input(self, name: str) -> Any:
        shape = list(self.anatomy.shapes[name])
        piece = self.takes.get(name)
        if piece is not None:
            shape[piece.axis] = len(piece.entries)
        kind = ELEMENT_TYPES[self.anatomy.dtypes[name]]
        return helper.make_tensor_value_info(name, kind, shape)


@dataclass(frozen=True, slots=True)
class Beside:
    """Each engine's part of a result has its place in it, along one dimension."""

    axis: int
    entries: tuple[range | tuple[int, ...], ...]
    """For each engine."""

    def place(self, member: int) -> tuple[Any, ...]:
        """As an index of the whole result."""
        mine = self.entries[member]
        entries = slice(mine.start, mine.stop) if isinstance(mine, range) else list(mine)
        return (*(slice(None),) * self.axis, entries)

    def in_one_piece(self, member: int, shape: Sequence[int]) -> bool:
        """Whether that place is memory in a row."""
        return isinstance(self.entries[member], range) and prod(shape[: self.axis]) == 1


@dataclass(frozen=True, slots=True)
class Summed:
    """Each engine has a part of a sum."""


Join = Beside | Summed


@dataclass(frozen=True, slots=True, kw_only=True)
class Built:
    """One engine's part, ready to run."""

    run: Callable[..., Sequence[Tensor]]
    into: Callable[..., None] | None
    inputs: Sequence[tuple[int, Piece | None]]
    """Which of the region's inputs it takes, and what of each, if not all."""
    share: float


class PieceDivision:
    """Each engine has a part of its own, built for it. It puts its results where they belong: on
    its own core, while the other is still at work."""

    __slots__ = ("_direct", "_forms", "_joins", "_parts")

    def __init__(
        self,
        parts: Sequence[Built],
        joins: Sequence[Join],
        forms: Sequence[tuple[tuple[int, ...], torch.dtype]],
    ) -> None:
        """`forms` are the shapes and types of the region's results."""
        self._parts, self._joins, self._forms = parts, joins, forms
        self._direct = [
            built.into is not None
            and all(
                isinstance(join, Beside) and join.in_one_piece(member, shape)
                for join, (shape, _) in zip(joins, forms, strict=True)
            )
            for member, built in enumerate(parts)
        ]
        """For each part, whether the backend can write its results to their places."""

    def __call__(self, *inputs: Tensor) -> Sequence[Tensor]:
        """One part after the other."""
        parts = self.take(inputs)
        return self.join(parts, [part.work(*part.inputs) for part in parts], [])

    def take(self, inputs: Sequence[Tensor]) -> list[Part]:
        whole = [
            torch.empty(shape, dtype=dtype) if isinstance(join, Beside) else None
            for join, (shape, dtype) in zip(self._joins, self._forms, strict=True)
        ]
        return [
            self._part(member, built, whole, inputs) for member, built in enumerate(self._parts)
        ]

    def _part(
        self, member: int, built: Built, whole: list[Tensor | None], inputs: Sequence[Tensor]
    ) -> Part:
        taken = [inputs[i] if piece is None else piece.of(inputs[i]) for i, piece in built.inputs]
        places = [
            None if tensor is None or not isinstance(join, Beside) else (tensor, join.place(member))
            for tensor, join in zip(whole, self._joins, strict=True)
        ]
        if self._direct[member]:
            assert built.into is not None
            theirs = [tensor[place] for tensor, place in filter(None, places)]
            return Part(member, built.into, [theirs, *taken], built.share, whole)
        return Part(member, partial(_put, built.run, places), taken, built.share, whole)

    def join(
        self, parts: Sequence[Part], results: Sequence[Sequence[Tensor]], took_s: Sequence[float]
    ) -> list[Tensor]:
        whole: Sequence[Tensor | None] = parts[0].about
        return [
            _summed([result[index] for result in results]) if tensor is None else tensor
            for index, tensor in enumerate(whole)
        ]


def _put(
    run: Callable[..., Sequence[Tensor]],
    places: Sequence[tuple[Tensor, tuple[Any, ...]] | None],
    *inputs: Tensor,
) -> Sequence[Tensor]:
    """By numpy, which does not wake up threads for it."""
    results = run(*inputs)
    for place, result in zip(places, results, strict=True):
        if place is not None:
            place[0].numpy()[place[1]] = result.numpy()
    return results


def _summed(results: Sequence[Tensor]) -> Tensor:
    total: np.ndarray = results[0].numpy()
    for result in results[1:]:
        total += result.numpy()
    return results[0]
