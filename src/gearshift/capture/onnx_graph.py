"""An ONNX graph kept as a list of nodes per op, from which regions are cut as small models.

Weights stay outside the model: a cut names those it needs. Must not know torch.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np
import onnx
from onnx import helper, numpy_helper

from gearshift.capture.program import Cut, Shapes, SizeValues
from gearshift.ir.graph import Graph
from gearshift.ir.region import boundary

INLINE_BYTES = 1024
UNKNOWN = "?"
"""Begins the text of a dimension nothing is known about."""
ELEMENT_TYPES = {
    "float32": onnx.TensorProto.FLOAT,
    "float64": onnx.TensorProto.DOUBLE,
    "float16": onnx.TensorProto.FLOAT16,
    "int64": onnx.TensorProto.INT64,
    "int32": onnx.TensorProto.INT32,
    "int16": onnx.TensorProto.INT16,
    "int8": onnx.TensorProto.INT8,
    "uint8": onnx.TensorProto.UINT8,
    "bool": onnx.TensorProto.BOOL,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class OnnxBody:
    model: onnx.ModelProto
    """Its initializers carry a name, a type and a shape; large ones no data."""
    weights: Mapping[str, str]
    """Initializer -> the weight of the graph that it is."""
    arrays: Mapping[str, np.ndarray]
    """Large constants that are no weights of the model."""


@dataclass(frozen=True, kw_only=True)
class OnnxGraph:
    graph: Graph
    nodes: Mapping[str, tuple[onnx.NodeProto, ...]]
    """For each op the nodes that compute it; ops with none here cannot run."""
    names: Mapping[str, str]
    """Value or size of the graph -> its name in ONNX, where it differs."""
    initializers: Mapping[str, str | np.ndarray]
    """ONNX name -> a weight of the graph, or the constant itself."""
    size_names: frozenset[str]
    """Values and sizes of the graph that are sizes: int64 scalars."""
    opset: tuple[onnx.OperatorSetIdProto, ...]
    runnable: frozenset[str] = field(default_factory=frozenset)
    proofs: dict[tuple[str, ...], Any] = field(default_factory=dict, compare=False)
    """What others found out about its regions, by their ops."""

    def cut(self, ops: Sequence[str], shapes: Shapes | None, sizes: SizeValues | None) -> Cut:
        edge = boundary(self.graph, ops)
        fed = {self._onnx(name): name for name in edge.inputs}
        known_sizes = {self._onnx(name): name for name in self.size_names}
        nodes = self._with_shared([node for op in ops for node in self.nodes[op]], fed, known_sizes)
        made = {output for node in nodes for output in node.output}
        read = list(dict.fromkeys(name for node in nodes for name in outer_reads(node)))
        used_sizes = {o: known_sizes[o] for o in read if o in known_sizes and o not in fed}
        outputs = {name: self._onnx(name) for name in edge.outputs}
        model = onnx.ModelProto(ir_version=10, opset_import=self.opset)
        model.graph.name = ops[0]
        model.graph.node.extend(nodes)
        model.graph.input.extend(self._input(name, o, shapes) for o, name in fed.items())
        for name, onnx_name in outputs.items():
            if onnx_name not in made:  # an input, a weight, or another value under a second name
                outputs[name] = f"{onnx_name}__out"
                model.graph.node.append(helper.make_node("Identity", [onnx_name], [outputs[name]]))
                read.append(onnx_name)
        model.graph.output.extend(self._output(name, o) for name, o in outputs.items())
        weights, arrays = self._add_initializers(model, read, made | fed.keys())
        known = {} if sizes is None else sizes
        open_sizes = {o: name for o, name in used_sizes.items() if name not in known}
        model.graph.input.extend(_scalar(o) for o in open_sizes)
        constants = {o: np.array(known[n], np.int64) for o, n in used_sizes.items() if n in known}
        model.graph.initializer.extend(
            numpy_helper.from_array(array, o) for o, array in constants.items()
        )
        return Cut(
            inputs=tuple(fed.values()),
            sizes=tuple(open_sizes.values()),
            weights=tuple(weights.values()),
            outputs=edge.outputs,
            body=OnnxBody(model=model, weights=weights, arrays=arrays),
        )

    def _with_shared(
        self, nodes: list[onnx.NodeProto], fed: Collection[str], sizes: Collection[str]
    ) -> list[onnx.NodeProto]:
        """With the nodes of other ops that these read from: exporters share small computations."""
        have = {output for node in nodes for output in node.output} | {*fed, *sizes}
        missing = [name for node in nodes for name in outer_reads(node) if name not in have]
        shared: dict[int, onnx.NodeProto] = {}
        while missing:
            found = self.makers.get(missing.pop())
            if found is not None and found[0] not in shared:
                index, node = found
                shared[index] = node
                have.update(node.output)
                missing += [name for name in outer_reads(node) if name not in have]
        return [*(shared[index] for index in sorted(shared)), *nodes]

    @cached_property
    def makers(self) -> Mapping[str, tuple[int, onnx.NodeProto]]:
        every = [node for op in self.graph.ops for node in self.nodes[op.name]]
        return {o: (index, node) for index, node in enumerate(every) for o in node.output}

    def _onnx(self, name: str) -> str:
        return self.names.get(name, name)

    def _input(self, name: str, onnx_name: str, shapes: Shapes | None) -> onnx.ValueInfoProto:
        value = self.graph.values[name]
        shape = shapes[name] if shapes is not None else [_dim(size) for size in value.shape]
        return helper.make_tensor_value_info(onnx_name, ELEMENT_TYPES[value.dtype], shape)

    def _output(self, name: str, onnx_name: str) -> onnx.ValueInfoProto:
        return helper.make_tensor_value_info(
            onnx_name, ELEMENT_TYPES[self.graph.values[name].dtype], None
        )

    def _add_initializers(
        self, model: onnx.ModelProto, read: Iterable[str], made: set[str]
    ) -> tuple[dict[str, str], dict[str, np.ndarray]]:
        weights: dict[str, str] = {}
        arrays: dict[str, np.ndarray] = {}
        for name in dict.fromkeys(read):
            source = self.initializers.get(name)
            if source is None or name in made:
                continue
            if isinstance(source, str):
                weights[name] = source
                value = self.graph.values[source]
                model.graph.initializer.append(external(name, value.dtype, value.shape))
            elif source.nbytes > INLINE_BYTES:
                arrays[name] = source
                model.graph.initializer.append(external(name, str(source.dtype), source.shape))
            else:
                model.graph.initializer.append(numpy_helper.from_array(source, name))
        return weights, arrays


def outer_reads(node: onnx.NodeProto) -> Iterable[str]:
    """What a node reads, its branches and loop bodies included."""
    yield from (name for name in node.input if name)
    for attribute in node.attribute:
        for body in (attribute.g, *attribute.graphs):
            inner = {o for child in body.node for o in child.output}
            inner |= {value.name for value in (*body.input, *body.initializer)}
            for child in body.node:
                yield from (name for name in outer_reads(child) if name not in inner)


def constant_array(node: onnx.NodeProto) -> np.ndarray | None:
    """What a Constant node holds; None for any other node, or what is no plain tensor."""
    if node.op_type != "Constant" or node.domain:
        return None
    (attribute,) = node.attribute
    value = helper.get_attribute_value(attribute)
    if attribute.name == "value":
        return numpy_helper.to_array(value)
    kinds: dict[str, type] = {"value_int": np.int64, "value_ints": np.int64}
    kinds |= {"value_float": np.float32, "value_floats": np.float32}
    return np.array(value, kinds[attribute.name]) if attribute.name in kinds else None


def _dim(size: int | str) -> int | str | None:
    return None if isinstance(size, str) and size.startswith(UNKNOWN) else size


def _scalar(name: str) -> onnx.ValueInfoProto:
    return helper.make_tensor_value_info(name, onnx.TensorProto.INT64, [])


def external(name: str, dtype: str, shape: Sequence[int | str]) -> onnx.TensorProto:
    """A tensor whose data a backend is handed apart; `weights` is no file."""
    tensor = onnx.TensorProto(
        name=name, data_type=ELEMENT_TYPES[dtype], dims=[int(d) for d in shape]
    )
    tensor.data_location = onnx.TensorProto.EXTERNAL
    length = int(np.prod(tensor.dims)) * np.dtype(dtype).itemsize
    for key, text in (("location", "weights"), ("offset", "0"), ("length", str(length))):
        tensor.external_data.add(key=key, value=text)
    return tensor
