"""The exported graph in torch's own form: read into a Graph, and cut into GraphModules.

Must not know ONNX.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from operator import getitem
from typing import Any

import torch
from torch import Tensor
from torch.export import ExportedProgram
from torch.export.graph_signature import InputKind

from gearshift.capture.program import Cut
from gearshift.errors import CaptureError
from gearshift.ir.graph import Graph, Op, Value
from gearshift.ir.kinds import ATEN_KINDS, CREATE, OTHER
from gearshift.ir.region import boundary

ASSERTIONS = ("_assert", "sym_constrain", "_check")


@dataclass(frozen=True, kw_only=True)
class Captured:
    """The graph with the torch nodes behind it. Names are the nodes', after `prefix`."""

    graph: Graph
    prefix: str
    nodes: Mapping[str, torch.fx.Node]
    """Every value and size by name."""
    members: Mapping[str, tuple[torch.fx.Node, ...]]
    """For each op its node and, if that gives a tuple, the nodes that take it apart."""
    size_values: Mapping[str, str]
    weights: Mapping[str, str]
    """Weight -> its path in the exported module."""
    constants: Mapping[str, Tensor]
    outputs: tuple[str, ...]
    module: torch.fx.GraphModule

    def reference(
        self, leaves: Sequence[Any], names: Sequence[str], weights: Mapping[str, Tensor]
    ) -> dict[str, Tensor]:
        """The named values, computed node by node; for checking and measuring, not for serving."""
        tensors = iter(leaf for leaf in leaves if isinstance(leaf, Tensor))
        placeholders = [n for n in self.module.graph.nodes if n.op == "placeholder"]
        given = [weights.get(self.prefix + n.name) for n in placeholders]
        filled = [next(tensors) if value is None else value for value in given]
        keeper = _Keeper(self.module, frozenset(name.removeprefix(self.prefix) for name in names))
        with torch.no_grad():
            keeper.run(*filled)
        return {self.prefix + name: value for name, value in keeper.kept.items()}

    def cut(self, ops: Sequence[str], sizes: Mapping[str, int] | None) -> Cut:
        """The region as a GraphModule over inputs, sizes (if not given), weights."""
        edge = boundary(self.graph, ops)
        read = self._sizes_read(ops)
        graph = torch.fx.Graph()
        copies: dict[torch.fx.Node, Any] = {}
        for name in (*edge.inputs, *(read if sizes is None else ()), *edge.weights):
            copies[self.nodes[name]] = graph.placeholder(_identifier(name))
        if sizes is not None:
            copies.update({self.nodes[name]: sizes[name] for name in read})
        for op in ops:
            for node in self.members[op]:
                copies[node] = graph.node_copy(node, copies.__getitem__)
                copies[node].meta = {}
        graph.output(tuple(copies[self.nodes[name]] for name in edge.outputs))
        module = torch.fx.GraphModule(torch.nn.Module(), graph)
        return Cut(
            inputs=edge.inputs,
            sizes=read if sizes is None else (),
            weights=edge.weights,
            outputs=edge.outputs,
            body=module,
        )

    def _sizes_read(self, ops: Sequence[str]) -> tuple[str, ...]:
        operands = [arg for op in ops for node in self.members[op] for arg in node.all_input_nodes]
        names = dict.fromkeys(self.prefix + node.name for node in operands)
        return tuple(name for name in names if name in self.size_values)


class _Keeper(torch.fx.Interpreter):
    def __init__(self, module: torch.fx.GraphModule, names: frozenset[str]) -> None:
        super().__init__(module)
        self.names = names
        self.kept: dict[str, Tensor] = {}

    def run_node(self, n: torch.fx.Node) -> Any:
        result = super().run_node(n)
        if n.name in self.names:
            self.kept[n.name] = result
        return result


def _identifier(name: str) -> str:
    return name.replace("/", "_").replace(".", "_")


def read(
    exported: ExportedProgram, *, prefix: str, is_attribute: Callable[[str], bool]
) -> Captured:
    reader = _Reader(exported, prefix, is_attribute)
    for node in exported.graph.nodes:
        reader.take(node)
    return reader.captured()


class _Reader:
    """Walks the nodes once and files each under what it is."""

    def __init__(
        self, exported: ExportedProgram, prefix: str, is_attribute: Callable[[str], bool]
    ) -> None:
        self.exported, self.prefix, self.is_attribute = exported, prefix, is_attribute
        self.roles = {spec.arg.name: spec for spec in exported.graph_signature.input_specs}
        self.nodes: dict[str, torch.fx.Node] = {}
        self.members: dict[str, list[torch.fx.Node]] = {}
        self.inputs: list[Value] = []
        self.weight_values: list[Value] = []
        self.weights: dict[str, str] = {}
        self.constants: dict[str, Tensor] = {}
        self.sizes: dict[str, str] = {}
        self.home: dict[torch.fx.Node, str] = {}
        self.outputs: tuple[str, ...] = ()

    def take(self, node: torch.fx.Node) -> None:
        name = self.prefix + node.name
        if node.op == "placeholder":
            self._placeholder(node, name)
        elif node.op == "output":
            results: Any = node.args[0]
            self.outputs = tuple(self.prefix + result.name for result in results)
        elif node.op != "call_function":
            raise CaptureError(f"the graph has a {node.op}", node.format_node())
        elif any(mark in str(node.target) for mark in ASSERTIONS):
            return
        elif _is_size(node):
            self.nodes[name] = node
            self.sizes[name] = _size_text(node.meta["val"])
        elif node.target is getitem:
            self.nodes[name] = node
            self.home[node] = self.home[node.args[0]]  # type: ignore[index]
            self.members[self.home[node]].append(node)
        else:
            self.nodes[name] = node
            self.home[node] = name
            self.members[name] = [node]

    def _placeholder(self, node: torch.fx.Node, name: str) -> None:
        self.nodes[name] = node
        spec = self.roles[node.name]
        if spec.kind is InputKind.USER_INPUT:
            self.inputs.append(_value(node, name))
            return
        if spec.kind not in (InputKind.PARAMETER, InputKind.BUFFER, InputKind.CONSTANT_TENSOR):
            raise CaptureError(f"the graph takes a {spec.kind.name.lower()}")
        assert spec.target is not None
        self.weight_values.append(_value(node, name))
        if spec.kind is InputKind.CONSTANT_TENSOR and not self.is_attribute(spec.target):
            self.constants[name] = self.exported.constants[spec.target]
        else:
            self.weights[name] = spec.target

    def captured(self) -> Captured:
        ops = tuple(self._op(name, nodes) for name, nodes in self.members.items())
        made = [out for op in ops for out in op.outputs]
        graph = Graph(
            inputs=tuple(self.inputs),
            weights=tuple(self.weight_values),
            ops=ops,
            results=tuple(_value(self.nodes[out], out) for out in made),
            outputs=self.outputs,
        )
        return Captured(
            graph=graph,
            prefix=self.prefix,
            nodes=self.nodes,
            members={name: tuple(nodes) for name, nodes in self.members.items()},
            size_values=self.sizes,
            weights=self.weights,
            constants=self.constants,
            outputs=self.outputs,
            module=self.exported.graph_module,
        )

    def _op(self, name: str, nodes: list[torch.fx.Node]) -> Op:
        first = nodes[0]
        operands = [n for n in first.all_input_nodes if self.prefix + n.name not in self.sizes]
        base = str(first.target).split(".")[-2]
        parts = nodes[1:] or nodes
        return Op(
            name=name,
            kind=ATEN_KINDS.get(base, CREATE if not operands else OTHER),
            form=self._form(first, operands),
            operands=tuple(self.prefix + node.name for node in operands),
            outputs=tuple(self.prefix + node.name for node in parts),
            fragment=self.prefix.removesuffix("/"),
            scope=_scope(first),
            line=node_line(first),
        )

    def _form(self, node: torch.fx.Node, operands: list[torch.fx.Node]) -> str:
        def token(arg: torch.fx.Node) -> _Token:
            if arg in operands:
                return _Token(f"%{operands.index(arg)}")
            return _Token(self.sizes[self.prefix + arg.name])

        args = torch.fx.node.map_arg((node.args, node.kwargs), token)
        taken = [part.args[1] for part in self.members[self.prefix + node.name][1:]]
        return f"{node.target}{args}{taken or ''}"


class _Token(str):
    """Prints without quotes."""

    def __repr__(self) -> str:
        return str(self)


def _is_size(node: torch.fx.Node) -> bool:
    value = node.meta.get("val")
    return isinstance(value, int | float | bool | torch.SymInt | torch.SymFloat | torch.SymBool)


def _size_text(value: Any) -> str:
    return str(value.node.expr) if hasattr(value, "node") else str(value)


def _value(node: torch.fx.Node, name: str) -> Value:
    from torch.fx.experimental.symbolic_shapes import free_unbacked_symbols  # slow to import

    fake = node.meta["val"]
    if not isinstance(fake, Tensor):
        raise CaptureError(f"{node.target} gives a {type(fake).__name__}", node_line(node))
    if free_unbacked_symbols(fake):
        raise CaptureError("the size of a result depends on values", node_line(node))
    dims = tuple(d if isinstance(d, int) else str(d.node.expr) for d in fake.shape)
    shape = tuple(int(d) if isinstance(d, str) and d.isdigit() else d for d in dims)
    return Value(name=name, dtype=str(fake.dtype).removeprefix("torch."), shape=shape)


def _scope(node: torch.fx.Node) -> str:
    stack = node.meta.get("nn_module_stack") or {}
    paths = [path for path, _ in stack.values() if path.startswith("module")]
    return paths[-1].removeprefix("module").removeprefix(".") if paths else ""


def node_line(node: torch.fx.Node) -> str:
    """file:line of the innermost frame of the user's code that made this node, if known."""
    trace = node.meta.get("stack_trace") or ""
    frames = [line.strip() for line in trace.splitlines() if line.strip().startswith("File ")]
    for frame in reversed(frames):
        path, line = frame.split('"')[1], frame.split(", line ")[1].split(",")[0]
        if not path.startswith(_torch_folder):
            return f"{path}:{line}"
    return ""


_torch_folder = torch.__file__.rpartition("/")[0]
