"""A torch.fx graph as plain data, to be sent to a child process of our own.

Must not know what the child does with it.
"""

import operator
from dataclasses import dataclass
from functools import reduce
from typing import Any

import torch
import torch.fx

GETITEM = "getitem"


@dataclass(frozen=True, slots=True)
class NodeRef:
    name: str


def pack(module: torch.fx.GraphModule) -> list[tuple[Any, ...]]:
    """The graph as plain data. Pickling a GraphModule traces it again on arrival, which would run
    ops without inputs there and turn their results into constants."""

    def as_ref(node: torch.fx.Node) -> Any:
        return NodeRef(node.name)

    def refer(arg: Any) -> Any:
        return torch.fx.node.map_arg(arg, as_ref)

    nodes = module.graph.nodes
    return [(n.op, n.name, _name(n.target), refer(n.args), refer(n.kwargs)) for n in nodes]


def _name(target: Any) -> str:
    return GETITEM if target is operator.getitem else str(target)


def unpack(nodes: list[tuple[Any, ...]]) -> torch.fx.GraphModule:
    graph = torch.fx.Graph()
    made: dict[str, Any] = {}
    for op, name, target, args, kwargs in nodes:
        found = _target(target) if op == "call_function" else target
        args, kwargs = _resolve((args, kwargs), made)
        made[name] = graph.create_node(op, found, args, kwargs, name=name)
    return torch.fx.GraphModule(torch.nn.Module(), graph)


def _target(name: str) -> Any:
    return operator.getitem if name == GETITEM else reduce(getattr, name.split("."), torch.ops)


def _resolve(value: Any, made: dict[str, Any]) -> Any:
    if isinstance(value, NodeRef):
        return made[value.name]
    if isinstance(value, dict):
        return {key: _resolve(item, made) for key, item in value.items()}
    if isinstance(value, tuple | list):
        return type(value)(_resolve(item, made) for item in value)
    return value
