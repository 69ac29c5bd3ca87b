"""A cell as a small ONNX model: x and the state in; the outputs and the state out.

Must not know who runs it.
"""

from typing import Any

import numpy as np
import onnx
from onnx import helper, numpy_helper
from torch import Tensor

from gearshift.act.recurrent.cell import Cell
from gearshift.capture.onnx_graph import OnnxBody, external
from gearshift.capture.program import Cut
from gearshift.ir.recurrent import GRU, LSTM, RELU, TANH

OPSET, IR_VERSION = 18, 10
ORDERS = {LSTM: (0, 3, 1, 2), GRU: (1, 0, 2), TANH: (0,), RELU: (0,)}
"""Torch's gates in the order ONNX has them."""
FLOAT = onnx.TensorProto.FLOAT


def onnx_cut(cell: Cell) -> Cut:
    names = {LSTM: "LSTM", GRU: "GRU"}
    states = ["h", "c"] if cell.kind == LSTM else ["h"]
    finals = [f"{name}_after" for name in states]
    arrays = {"W": _ordered(cell, cell.weights[0]), "R": _ordered(cell, cell.weights[1])}
    if cell.has_biases:
        arrays["B"] = np.concatenate([_ordered(cell, bias) for bias in cell.biases], axis=1)
    settings: dict[str, dict[str, Any]]
    settings = {GRU: {"linear_before_reset": 1}, RELU: {"activations": ["Relu"]}}
    inputs = ["x", "W", "R", "B" if cell.has_biases else "", "", *states]
    nodes = [
        helper.make_node(
            names.get(cell.kind, "RNN"),
            inputs,
            ["each", *finals],
            hidden_size=cell.hidden_size,
            **settings.get(cell.kind, {}),
        ),
        helper.make_node("Squeeze", ["each", "one"], ["y"]),
    ]
    sizes = dict(zip(states, cell.state_sizes(), strict=True))
    given = [helper.make_tensor_value_info("x", FLOAT, ["steps", "rows", cell.input_size])]
    given += [helper.make_tensor_value_info(s, FLOAT, [1, "rows", sizes[s]]) for s in states]
    made = [helper.make_tensor_value_info(name, FLOAT, None) for name in ("y", *finals)]
    graph = helper.make_graph(nodes, "cell", given, made)
    graph.initializer.append(numpy_helper.from_array(np.array([1], np.int64), "one"))
    graph.initializer.extend(external(n, str(a.dtype), a.shape) for n, a in arrays.items())
    model = helper.make_model(
        graph, ir_version=IR_VERSION, opset_imports=[helper.make_opsetid("", OPSET)]
    )
    return Cut(
        inputs=("x", *states),
        sizes=(),
        weights=(),
        outputs=("y", *finals),
        body=OnnxBody(model=model, weights={}, arrays=arrays),
    )


def _ordered(cell: Cell, weight: Tensor) -> np.ndarray:
    """With the gates in ONNX's order, and a first dimension for the direction."""
    order = ORDERS[cell.kind]
    parts = np.split(weight.detach().numpy(), len(order))
    joined = np.concatenate([parts[i] for i in order])
    return np.ascontiguousarray(joined[np.newaxis])
