"""Folds what an ONNX export computes from constants alone, node by node.

A bias of zeros made at run time keeps ONNX Runtime from fusing a convolution with anything: that
made mobilenet_v2 three times as slow. Must not know ops or regions.
"""

from typing import Any

import numpy as np
from onnx import NodeProto, TensorProto, helper
from onnx.reference import ReferenceEvaluator

from gearshift.capture.onnx_graph import ELEMENT_TYPES

MAX_BYTES = 1 << 16
"""Larger results stay computed: they would only be carried about."""


RANDOM = frozenset(
    {
        "Bernoulli",
        "Dropout",
        "Multinomial",
        "RandomNormal",
        "RandomNormalLike",
        "RandomUniform",
        "RandomUniformLike",
    }
)


class Folding:
    """Goes through the nodes in order; `constants` holds what is known so far."""

    def __init__(self, opsets: list[Any]) -> None:
        self.constants: dict[str, np.ndarray] = {}
        self._opsets = opsets

    def fold(self, node: Any, proto: NodeProto) -> NodeProto | None:
        """The node as it is to be kept, or None if its result is a constant now. `node` is the same
        one with what the exporter knows of its inputs' shapes and types."""
        proto = _cast(node, proto)
        array = _shape(node, proto)
        if array is None and self._computable(proto):
            array = self._compute(proto)
        if array is None or array.nbytes > MAX_BYTES:
            return proto
        self.constants[proto.output[0]] = array
        return None

    def _computable(self, proto: NodeProto) -> bool:
        inputs = [name for name in proto.input if name]
        return (
            len(proto.output) == 1
            and bool(inputs)
            and not proto.domain
            and proto.op_type not in RANDOM
            and all(name in self.constants for name in inputs)
        )

    def _compute(self, proto: NodeProto) -> np.ndarray | None:
        names = [name for name in dict.fromkeys(proto.input) if name]
        inputs = [helper.make_tensor_value_info(name, 0, None) for name in names]
        outputs = [helper.make_tensor_value_info(proto.output[0], 0, None)]
        model = helper.make_model(
            helper.make_graph([proto], "constant", inputs, outputs), opset_imports=self._opsets
        )
        try:
            (result,) = ReferenceEvaluator(model).run(None, {n: self.constants[n] for n in names})
        except Exception:  # what the reference does not know stays as it is
            return None
        array = np.array(result, order="C")  # its address is handed on
        return array if array.dtype.name in ELEMENT_TYPES else None


def _cast(node: Any, proto: NodeProto) -> NodeProto:
    """`CastLike` reads a tensor only for its type, which is known."""
    if proto.op_type != "CastLike" or node.inputs[1] is None or node.inputs[1].dtype is None:
        return proto
    to = int(node.inputs[1].dtype)
    if to == TensorProto.UNDEFINED:
        return proto
    return helper.make_node("Cast", [proto.input[0]], list(proto.output), proto.name, to=to)


def _shape(node: Any, proto: NodeProto) -> np.ndarray | None:
    """Of a tensor whose sizes are all numbers."""
    value = node.inputs[0] if proto.op_type == "Shape" else None
    if value is None or value.shape is None or not all(isinstance(d, int) for d in value.shape):
        return None
    ends = {attribute.name: attribute.i for attribute in proto.attribute}
    sizes = [int(size) for size in value.shape]
    return np.array(sizes[ends.get("start", 0) : ends.get("end", len(sizes))], dtype=np.int64)
