"""An .onnx file -> a Program. Its eager form, the reference, is ONNX Runtime unoptimised.

Must not know what is done with it.
"""

import inspect
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.utils import _pytree as pytree

from gearshift.capture.calls import Leaf, Sizes, call_form
from gearshift.capture.program import Fragment, Program, Ref
from gearshift.capture.weights import NOTHING_TO_WATCH
from gearshift.errors import InputError, MissingExtraError, ModelError
from gearshift.ir.graph import Graph, Op, Value
from gearshift.ir.kinds import ONNX_KINDS, OTHER

try:
    import onnx
    import onnxruntime
    from onnx import inliner, numpy_helper

    from gearshift.capture.onnx_graph import (
        ELEMENT_TYPES,
        INLINE_BYTES,
        UNKNOWN,
        OnnxGraph,
        constant_array,
        outer_reads,
    )
except ImportError:
    raise MissingExtraError("onnx", "an .onnx model") from None

DTYPES: dict[int, str] = {element: name for name, element in ELEMENT_TYPES.items()}
EXAMPLE_SIZE = 2
"""For a dimension the file leaves open."""


def capture_onnx(path: Path) -> Program:
    model = _read(path)
    weights = _weights(model)
    nodes = [node for node in model.graph.node if constant_array(node) is None]
    inputs = [v for v in model.graph.input if v.name not in weights]
    leaves = tuple(_leaf(value) for value in inputs)
    example = tuple(_example(leaf) for leaf in leaves)
    reference = OnnxReference(model, [leaf.name for leaf in leaves])
    values = _values(reference, nodes, example, path)
    graph = Graph(
        inputs=tuple(_value(leaf.name, values[leaf.name], leaf.shape) for leaf in leaves),
        weights=tuple(_value(name, array) for name, array in weights.items()),
        ops=_ops(nodes, values),
        results=tuple(
            _value(name, values[name], _open(values[name]))
            for node in nodes
            for name in node.output
            if name
        ),
        outputs=tuple(value.name for value in model.graph.output),
    )
    form = OnnxGraph(
        graph=graph,
        nodes={op.name: (node,) for op, node in zip(graph.ops, nodes, strict=True)},
        names={},
        initializers={n: a if a.nbytes <= INLINE_BYTES else n for n, a in weights.items()},
        size_names=frozenset(),
        opset=tuple(model.opset_import),
        runnable=frozenset(op.name for op in graph.ops),
    )
    fragment = _fragment(graph, form, leaves, example, reference, weights)
    return Program(
        fragments=(fragment,),
        eager=reference,
        example=(example, {}),
        reference_name="reference",
    )


def _fragment(
    graph: Graph,
    form: OnnxGraph,
    leaves: tuple[Leaf, ...],
    example: tuple[Tensor, ...],
    reference: "OnnxReference",
    weights: Mapping[str, np.ndarray],
) -> Fragment:
    outputs = tuple(Ref(name) for name in graph.outputs)
    _, out_spec = pytree.tree_flatten(outputs[0] if len(outputs) == 1 else outputs)
    return Fragment(
        name="",
        eager=reference,
        graph=graph,
        form=call_form(reference.signature, example, {}),
        leaves=leaves,
        sizes=_sizes(leaves),
        size_values={},
        inputs=tuple(range(len(leaves))),
        outputs=outputs,
        out_spec=out_spec,
        slots={},
        constants={name: torch.from_numpy(array) for name, array in weights.items()},
        watch=NOTHING_TO_WATCH,
        example=example,
        reference=reference.values,
        onnx=form,
    )


class OnnxReference:
    """The whole file, run plainly; called like a model, by position or by the inputs' names."""

    def __init__(self, model: "onnx.ModelProto", names: Sequence[str]) -> None:
        self._model, self._names = model, list(names)
        self._outputs = [value.name for value in model.graph.output]
        self._session = self._open([])
        kinds = inspect.Parameter
        self.signature = inspect.Signature(
            [kinds(name, kinds.POSITIONAL_OR_KEYWORD) for name in map(_identifier, names)]
        )

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        try:
            bound = self.signature.bind(*args, **kwargs)
        except TypeError as error:
            raise InputError(f"{error}; this model takes {', '.join(self._names)}") from None
        results = self._run(self._session, bound.args, self._outputs)
        return results[0] if len(results) == 1 else tuple(results)

    def values(
        self, leaves: Sequence[Any], names: Sequence[str], weights: Mapping[str, Tensor]
    ) -> dict[str, Tensor]:
        """Any values inside the graph, with a session that gives them out."""
        given = dict(zip(self._names, leaves, strict=True))
        inner = [name for name in names if name not in given]
        found = self._run(self._open(inner), leaves, inner)
        return {n: given[n] for n in names if n in given} | dict(zip(inner, found, strict=True))

    def _open(self, extra: Sequence[str]) -> Any:
        model = onnx.ModelProto()
        model.CopyFrom(self._model)
        have = {value.name for value in model.graph.output}
        model.graph.output.extend(onnx.ValueInfoProto(name=n) for n in extra if n not in have)
        return plain_session(model)

    def _run(self, session: Any, leaves: Sequence[Tensor], names: Sequence[str]) -> list[Tensor]:
        feeds = {n: leaf.detach().numpy() for n, leaf in zip(self._names, leaves, strict=True)}
        arrays = session.run(list(names), feeds) if names else []
        return [torch.from_numpy(np.asarray(array)) for array in arrays]


def plain_session(model: "onnx.ModelProto") -> Any:
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.log_severity_level = 4
    options.add_session_config_entry("session.force_spinning_stop", "1")
    return onnxruntime.InferenceSession(
        model.SerializeToString(), options, providers=["CPUExecutionProvider"]
    )


def _read(path: Path) -> "onnx.ModelProto":
    try:
        onnx.checker.check_model(str(path))
        model = onnx.load(str(path))
    except Exception as error:
        lines = str(error).strip().splitlines() or [type(error).__name__]
        raise ModelError(f"{str(path)!r} is no valid ONNX model: {lines[0][:200]}") from error
    if model.functions:
        model = inliner.inline_local_functions(model)
    for tensor in model.graph.input:
        if tensor.type.tensor_type.elem_type not in DTYPES:
            raise ModelError(f"{str(path)!r}: input {tensor.name} is no tensor of a known type")
    return model


def _weights(model: "onnx.ModelProto") -> dict[str, np.ndarray]:
    held = {t.name: numpy_helper.to_array(t) for t in model.graph.initializer}
    for node in model.graph.node:
        array = constant_array(node)
        if array is not None:
            held[node.output[0]] = array
    return {name: np.array(array) for name, array in held.items()}


def _leaf(value: "onnx.ValueInfoProto") -> Leaf:
    tensor = value.type.tensor_type
    shape: list[int | str] = []
    for index, dim in enumerate(tensor.shape.dim):
        if dim.HasField("dim_value"):
            shape.append(dim.dim_value)
        else:
            shape.append(_identifier(dim.dim_param or f"{value.name}_{index}"))
    dtype = getattr(torch, DTYPES[tensor.elem_type])
    return Leaf(name=value.name, dtype=dtype, shape=tuple(shape))


def _identifier(name: str) -> str:
    return name if name.isidentifier() else "d_" + "".join(c if c.isalnum() else "_" for c in name)


def _example(leaf: Leaf) -> Tensor:
    shape = [d if isinstance(d, int) else EXAMPLE_SIZE for d in leaf.shape]
    assert leaf.dtype is not None
    if leaf.dtype.is_floating_point:
        return torch.randn(shape, generator=torch.Generator().manual_seed(0)).to(leaf.dtype)
    return torch.ones(shape, dtype=leaf.dtype)


def _sizes(leaves: Sequence[Leaf]) -> Sizes:
    reads: dict[str, tuple[int, int]] = {}
    for index, leaf in enumerate(leaves):
        for dim, size in enumerate(leaf.shape):
            if isinstance(size, str):
                reads.setdefault(size, (index, dim))
    return Sizes(reads=reads, ranges={}, guards=())


def _values(
    reference: OnnxReference, nodes: Sequence[Any], example: Sequence[Tensor], path: Path
) -> dict[str, np.ndarray]:
    """Every value on the example: its type is what the file need not say."""
    names = [name for node in nodes for name in node.output if name]
    try:
        found = reference.values(example, [*reference._names, *names], {})
    except Exception as error:
        lines = str(error).strip().splitlines()
        raise ModelError(
            f"{str(path)!r} does not run on an example input: {lines[0][:200]}"
        ) from error
    return {name: value.numpy() for name, value in found.items()}


def _value(name: str, array: Any, shape: Sequence[int | str] | None = None) -> Value:
    dims = tuple(array.shape) if shape is None else tuple(shape)
    return Value(name=name, dtype=str(array.dtype).removeprefix("torch."), shape=dims)


def _open(array: np.ndarray) -> tuple[str, ...]:
    """Inside the graph only the rank is known for sure."""
    return tuple(f"{UNKNOWN}{index}" for index in range(array.ndim))


def _ops(nodes: Sequence[Any], values: Mapping[str, np.ndarray]) -> tuple[Op, ...]:
    """A node's form says which operand goes where and, since the file need not, the shapes made."""
    ops = []
    for index, node in enumerate(nodes):
        operands = tuple(dict.fromkeys(outer_reads(node)))
        bare = onnx.NodeProto()
        bare.CopyFrom(node)
        bare.ClearField("name")
        del bare.input[:], bare.output[:]
        slots = [operands.index(name) if name else None for name in node.input]
        shapes = [values[name].shape for name in node.output if name]
        ops.append(
            Op(
                name=node.name or f"{node.op_type}_{index}",
                kind=ONNX_KINDS.get(node.op_type, OTHER),
                form=f"{bare.SerializeToString(deterministic=True).hex()}{slots}{shapes}",
                operands=operands,
                outputs=tuple(name for name in node.output if name),
                scope=_scope(node.name),
            )
        )
    return _unique(ops)


def _scope(name: str) -> str:
    """Exporters name nodes /layer1/conv/Conv."""
    return ".".join(name.strip("/").split("/")[:-1])


def _unique(ops: list[Op]) -> tuple[Op, ...]:
    seen: dict[str, int] = {}
    unique = []
    for op in ops:
        seen[op.name] = seen.get(op.name, 0) + 1
        extra = f"_{seen[op.name]}" if seen[op.name] > 1 else ""
        unique.append(replace(op, name=op.name + extra))
    return tuple(unique)
