"""The exported program once as ONNX, each node filed under the op it came from.

Must not know what is done with the nodes.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch.export import ExportedProgram

from gearshift.capture.program import Lookup
from gearshift.capture.recurrent import onnx_translations

if TYPE_CHECKING:
    from gearshift.capture.fx import Captured
    from gearshift.capture.onnx_graph import OnnxGraph
    from gearshift.ir.graph import Op

FX_NODE = "pkg.torch.onnx.fx_node"


def convert(exported: ExportedProgram) -> tuple[ExportedProgram, "OnnxExport | None", list[str]]:
    """The program in the form ONNX was made from, the ONNX, and what to tell the user.

    The decomposed program is used from here on, also without ONNX: it is functional, and its names
    are those of the ONNX values.
    """
    try:
        import onnx  # noqa: F401
        import onnxscript  # noqa: F401
    except ImportError:
        note = 'no ONNX form: pip install "gearshift[onnx]"'
        return exported.run_decompositions({}), None, [note]
    _keep_copies(exported)
    try:
        converted = torch.onnx.export(
            exported,
            dynamo=True,
            optimize=False,
            verbose=False,
            custom_translation_table=onnx_translations(),
        )
    except Exception as error:  # any failure of the exporter leaves the torch backends
        note = f"no ONNX form: {_innermost(error)}"
        return exported.run_decompositions({}), None, [note]
    assert converted is not None
    assert converted.exported_program is not None
    return converted.exported_program, OnnxExport(model=converted.model), []


def _keep_copies(exported: ExportedProgram) -> None:
    """The exporter drops a `contiguous` it takes for idle, then stumbles over the strides."""
    for node in exported.graph.nodes:
        if node.target is torch.ops.aten.contiguous.default:
            node.target = torch.ops.aten.clone.default
            node.kwargs = {"memory_format": torch.contiguous_format}
    exported.graph_module.recompile()


def _innermost(error: BaseException) -> str:
    while error.__cause__ is not None:
        error = error.__cause__
    lines = str(error).strip().splitlines()
    return f"{type(error).__name__}: {lines[0][:200]}" if lines else type(error).__name__


@dataclass(frozen=True, slots=True)
class OnnxExport:
    model: Any

    def attach(self, captured: "Captured", lookups: Sequence[Lookup]) -> "OnnxGraph":
        """File nodes and initializers under the ops and weights of the captured graph."""
        from gearshift.capture.onnx_graph import OnnxGraph

        nodes, constants = self._nodes_by_op(captured)
        known = {o for group in nodes.values() for node in group for o in node.output}
        known |= {value.name for value in self.model.graph.inputs}
        known |= {*self.model.graph.initializers, *constants}
        names = self._names(captured, known)
        unchecked = {look.op for look in lookups if not look.cheap(captured.graph)}
        runnable = frozenset(
            op.name
            for op in captured.graph.ops
            if op.name not in unchecked
            and not _inexact(captured, op)
            and not any(map(_has_graphs, nodes[op.name]))
            and all(names.get(v, v) in known and _crosses(captured, v) for v in op.outputs)
            and all(_crosses(captured, v) for v in op.operands)
        )
        return OnnxGraph(
            graph=captured.graph,
            nodes=nodes,
            names=names,
            initializers={**self._initializers(captured), **constants},
            size_names=frozenset(captured.size_values),
            opset=tuple(_opsets(self.model)),
            runnable=runnable,
        )

    def _nodes_by_op(
        self, captured: "Captured"
    ) -> tuple[dict[str, tuple[Any, ...]], dict[str, np.ndarray]]:
        """Constants, and what is computed from them alone, are taken out: the exporter shares them
        between ops. What the graph knows as a value stays."""
        from onnx_ir import serde

        from gearshift.capture.onnx_fold import Folding
        from gearshift.capture.onnx_graph import constant_array

        home = {
            captured.prefix + node.name: op
            for op, group in captured.members.items()
            for node in group
        }
        found: dict[str, list[Any]] = {op.name: [] for op in captured.graph.ops}
        own = {node.name for group in captured.members.values() for node in group}
        folding = Folding(_opsets(self.model))
        for name, value in self.model.graph.initializers.items():
            if name not in captured.weights.values():
                folding.constants[name] = value.const_value.numpy()
        for node in self.model.graph:
            text = node.metadata_props.get(FX_NODE, "")
            name = captured.prefix + text.removeprefix("%").split(" ")[0]
            proto = serde.serialize_node(node)
            proto.ClearField("metadata_props")
            array = constant_array(proto)
            if array is not None:
                folding.constants[proto.output[0]] = array
                continue
            is_value = proto.output[0].split("__")[0] in own
            kept = proto if is_value else folding.fold(node, proto)
            if kept is not None and name in home:
                found[home[name]].append(kept)
        return {op: tuple(group) for op, group in found.items()}, folding.constants

    def _names(self, captured: "Captured", known: set[str]) -> dict[str, str]:
        """Names that differ: prefixed ones, weights, and the parts of ops with several outputs."""
        names = {name: node.name for name, node in captured.nodes.items() if captured.prefix}
        names.update(captured.weights)
        for op in captured.graph.ops:
            first, *parts = captured.members[op.name]
            for part in parts:
                if part.name not in known:
                    names[captured.prefix + part.name] = f"{first.name}__{part.args[1]}"
        return names

    def _initializers(self, captured: "Captured") -> dict[str, str | np.ndarray]:
        weights: Mapping[str, str] = {path: name for name, path in captured.weights.items()}
        found: dict[str, str | np.ndarray] = {}
        for name, value in self.model.graph.initializers.items():
            found[name] = weights[name] if name in weights else value.const_value.numpy()
        return found


def _crosses(captured: "Captured", value: str) -> bool:
    """Whether a value's dtype exists on the other side."""
    from gearshift.capture.onnx_graph import ELEMENT_TYPES

    return captured.graph.values[value].dtype in ELEMENT_TYPES


INEXACT = frozenset({"log1p", "expm1", "remainder", "fmod"})
"""Their translations lose precision on small or large numbers."""
INEXACT_WHOLE = frozenset({"prod"})
"""Those that do on whole numbers."""


def _has_graphs(node: Any) -> bool:
    """Loops and branches read names from around them, which a cut does not see."""
    return any(attribute.HasField("g") or attribute.graphs for attribute in node.attribute)


def _inexact(captured: "Captured", op: "Op") -> bool:
    base = op.form.split(".")[1]
    whole = captured.graph.values[op.outputs[0]].dtype == "int64"
    return base in INEXACT or (whole and base in INEXACT_WHOLE)


def _opsets(model: Any) -> list[Any]:
    from onnx import helper

    return [helper.make_opsetid(domain, version) for domain, version in model.opset_imports.items()]
