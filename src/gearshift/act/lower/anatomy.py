"""A region looked into: its ONNX nodes, and what every value of it is on some leaves.

Must not know why anybody looks.
"""

from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
from onnx import NodeProto, ValueInfoProto, helper, numpy_helper

from gearshift.act.backends.onnxruntime import open_session, to_numpy
from gearshift.act.backends.protocol import Order
from gearshift.act.labels import size_number
from gearshift.capture.onnx_graph import OnnxBody
from gearshift.capture.program import Fragment
from gearshift.ir.region import boundary
from gearshift.ir.topology import CALLER, EngineSpec
from gearshift.ir.work import value_bytes
from gearshift.plan.rewrite import Rewrite

STANDARD = ("", "ai.onnx")
FLATTENED, FLATTENED_BEFORE = ("Softmax", "LogSoftmax", "Hardmax"), 13
SHAPES = ("Shape", "Size")
"""What they tell is the same for all tensors of a size."""
SMALL = 64
"""Values of so many entries may be sizes; what they hold is kept."""
MOST_BYTES = 2**30
"""All that is made on the way is held at the same time."""


class Undivided(Exception):
    """A region cannot be divided; says why."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Anatomy:
    """Names are those of ONNX, but for the keys of `names`."""

    nodes: tuple[NodeProto, ...]
    shapes: Mapping[str, tuple[int, ...]]
    dtypes: Mapping[str, str]
    small: Mapping[str, np.ndarray]
    settled: Mapping[str, np.ndarray]
    """Those of the small ones that are the same whatever the region is given at these sizes."""
    names: Mapping[str, str]
    """For each input and output of the region, its ONNX name."""
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    body: OnnxBody
    constants: Mapping[str, np.ndarray]
    """Weights among them, without a copy, and what is computed from constants alone."""


def anatomy(fragment: Fragment, ops: Sequence[str], leaves: Sequence[Any]) -> Anatomy:
    """Run unoptimised, so that every value is there."""
    assert fragment.onnx is not None
    edge = boundary(fragment.graph, ops)
    _refuse_large(fragment, ops, leaves)
    try:
        known = fragment.reference(leaves, [*edge.inputs, *edge.outputs], fragment.weights)
    except Exception as error:  # the model's own word on whether it runs at that size
        raise Undivided(f"the model does not run at this size: {error}") from error
    sizes = fragment.size_numbers(fragment.sizes.bind(leaves))
    shapes = {name: tuple(value.shape) for name, value in known.items()}
    cut = fragment.onnx.cut(ops, shapes, sizes)
    body: OnnxBody = cut.body
    given = [value.name for value in body.model.graph.input]
    told = [value.name for value in body.model.graph.output]
    nodes = tuple(body.model.graph.node)
    _refuse_odd(body, nodes)
    made = [name for node in nodes for name in node.output if name]
    feeds = {o: to_numpy(known[name]) for o, name in zip(given, cut.inputs, strict=True)}
    constants = _constants(fragment, body)
    values = {**constants, **feeds, **_values(fragment, ops, body, made, feeds)}
    if not all(isinstance(value, np.ndarray) for value in values.values()):
        raise Undivided("it keeps tensors in a list")
    constants = _with_derived(constants, nodes, values)
    small = {name: value for name, value in values.items() if value.size <= SMALL}
    settled = _with_derived(constants, nodes, values, whatever=SHAPES)
    return Anatomy(
        nodes=nodes,
        shapes={name: value.shape for name, value in values.items()},
        dtypes={name: str(value.dtype) for name, value in values.items()},
        small=small,
        settled={name: value for name, value in small.items() if name in settled},
        names=dict(zip((*cut.inputs, *cut.outputs), (*given, *told), strict=True)),
        inputs=tuple(given),
        outputs=tuple(told),
        body=body,
        constants=constants,
    )


def _refuse_large(fragment: Fragment, ops: Sequence[str], leaves: Sequence[Any]) -> None:
    graph, size = fragment.graph, partial(size_number, bound=fragment.sizes.bind(leaves))
    made = [name for op in ops for name in graph.by_name[op].outputs]
    with suppress(ValueError):  # a size that is not known before the call
        made_bytes = value_bytes(graph, made, size)
        if made_bytes > MOST_BYTES:
            raise Undivided(f"to look into it would take {made_bytes / 1e9:.1f} GB at this size")


def _refuse_odd(body: OnnxBody, nodes: Sequence[NodeProto]) -> None:
    """What no rule was written for, however it is divided."""
    versions = [o.version for o in body.model.opset_import if o.domain in STANDARD]
    for node in nodes:
        if node.domain not in STANDARD:
            raise Undivided(f"{node.op_type} of {node.domain} is not known")
        if any(a.HasField("g") or a.graphs for a in node.attribute):
            raise Undivided(f"{node.op_type} has branches or a loop")
        if attributes(node).get("training_mode", 0):
            raise Undivided(f"{node.op_type} is in training mode")
        if node.op_type in FLATTENED and min(versions, default=0) < FLATTENED_BEFORE:
            raise Undivided(f"{node.op_type} works over several dimensions before opset 13")


def _constants(fragment: Fragment, body: OnnxBody) -> dict[str, np.ndarray]:
    inline = {
        tensor.name: numpy_helper.to_array(tensor)
        for tensor in body.model.graph.initializer
        if not tensor.external_data
    }
    weights = {name: to_numpy(fragment.weights[weight]) for name, weight in body.weights.items()}
    return {**inline, **weights, **body.arrays}


def _with_derived(
    constants: Mapping[str, np.ndarray],
    nodes: Sequence[NodeProto],
    values: Mapping[str, np.ndarray],
    whatever: Collection[str] = (),
) -> dict[str, np.ndarray]:
    """What is computed from them, too; and by these ops, from anything."""
    found = dict(constants)
    for node in nodes:
        if node.op_type in whatever or all(name in found for name in node.input if name):
            found |= {name: values[name] for name in node.output if name}
    return found


def _values(
    fragment: Fragment,
    ops: Sequence[str],
    body: OnnxBody,
    made: Sequence[str],
    feeds: Mapping[str, np.ndarray],
) -> dict[str, np.ndarray]:
    model = type(body.model)()
    model.CopyFrom(body.model)
    have = {value.name for value in model.graph.output}
    model.graph.output.extend(ValueInfoProto(name=name) for name in made if name not in have)
    order = Order(
        fragment=fragment,
        ops=tuple(ops),
        rewrite=Rewrite(backend="onnxruntime", threads=1),
        engine=EngineSpec(name=CALLER, kind=CALLER, cores=(0,)),
    )
    open_body = OnnxBody(model=model, weights=body.weights, arrays=body.arrays)
    try:
        session = open_session(order, open_body, optimise=False)
        return dict(zip(made, session.run(list(made), dict(feeds)), strict=True))
    except Exception as error:  # ONNX Runtime's own word on whether it can
        reason = " ".join(str(error).split())[:200]
        raise Undivided(f"it does not run op by op: {reason}") from error


def attributes(node: NodeProto) -> dict[str, Any]:
    return {a.name: helper.get_attribute_value(a) for a in node.attribute}
