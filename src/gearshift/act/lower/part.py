"""One engine's part of a region that is cut in pieces when it is built: its own ONNX nodes, its own
weights; what it takes of each input, and where its results go.

Must not know how the pieces were chosen.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from onnx import ModelProto, NodeProto, helper, numpy_helper
from torch import Tensor

from gearshift.act.engines.team import Part
from gearshift.act.lower.anatomy import Anatomy
from gearshift.capture.onnx_graph import ELEMENT_TYPES, INLINE_BYTES, OnnxBody, external
from gearshift.capture.program import Cut


@dataclass(frozen=True, slots=True)
class Piece:
    """Some entries of a tensor along one dimension."""

    axis: int
    entries: range | tuple[int, ...]

    def of(self, tensor: Tensor) -> Tensor:
        if isinstance(self.entries, range):
            return tensor.narrow(self.axis, self.entries.start, len(self.entries))
        return tensor.index_select(self.axis, torch.tensor(self.entries))

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
        self.pieces[name] = np.ascontiguousarray(array)
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
        own = {name: np.ascontiguousarray(array) for name, array in own.items()}
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


Join = Callable[[Sequence[Tensor]], Tensor]


def side_by_side(axis: int) -> Join:
    return lambda results: torch.cat(list(results), axis)


def dealt(axis: int, entries: Sequence[Sequence[int]]) -> Join:
    """Each entry back to where it was taken from."""
    order = torch.tensor([entry for part in entries for entry in part]).argsort()
    return lambda results: torch.cat(list(results), axis).index_select(axis, order)


def summed(results: Sequence[Tensor]) -> Tensor:
    total = results[0].clone()
    for result in results[1:]:
        total += result
    return total


class PieceDivision:
    """Each engine has a part of its own, built for it."""

    __slots__ = ("_joins", "_parts", "_shares")

    def __init__(
        self,
        inputs: Sequence[str],
        parts: Sequence[tuple[Callable[..., Sequence[Tensor]], Cut, Mapping[str, Piece]]],
        joins: Sequence[Join],
        shares: Sequence[float],
    ) -> None:
        """For each engine what it runs, and what that takes, by the names of `inputs`; and what
        share of the work that is."""
        place = {name: index for index, name in enumerate(inputs)}
        self._parts = [
            (run, [(place[name], takes.get(name)) for name in cut.inputs])
            for run, cut, takes in parts
        ]
        self._joins, self._shares = joins, shares

    def __call__(self, *inputs: Tensor) -> Sequence[Tensor]:
        """One part after the other."""
        parts = self.take(inputs)
        return self.join(parts, [part.work(*part.inputs) for part in parts], [])

    def take(self, inputs: Sequence[Tensor]) -> list[Part]:
        return [
            Part(
                member,
                run,
                [inputs[i] if piece is None else piece.of(inputs[i]) for i, piece in wanted],
                self._shares[member],
            )
            for member, (run, wanted) in enumerate(self._parts)
        ]

    def join(
        self, parts: Sequence[Part], results: Sequence[Sequence[Tensor]], took_s: Sequence[float]
    ) -> list[Tensor]:
        return [
            join([result[index] for result in results]) for index, join in enumerate(self._joins)
        ]
