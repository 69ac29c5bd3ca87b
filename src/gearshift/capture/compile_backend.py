"""`torch.compile(model, backend="gearshift")`: each graph torch hands over becomes a runtime.

Weights arrive as inputs there: they are frozen by identity. Backward is refused aloud.
"""

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from gearshift.errors import GearshiftError

Replace = Callable[[nn.Module, tuple[Tensor, ...]], Callable[..., Any]]


class Frozen(nn.Module):
    """The graph with its weights in their places and sizes read off the tensors that have them."""

    def __init__(
        self, graph: torch.fx.GraphModule, inputs: Sequence["int | SizeOf | Tensor"]
    ) -> None:
        super().__init__()
        self.graph = graph
        self.inputs = list(inputs)
        for index, given in enumerate(inputs):
            if isinstance(given, nn.Parameter):
                self.register_parameter(f"weight_{index}", given)
            elif isinstance(given, Tensor):
                self.register_buffer(f"weight_{index}", given)

    def forward(self, *tensors: Tensor) -> Any:
        full: list[Any] = []
        for index, given in enumerate(self.inputs):
            if isinstance(given, Tensor):
                full.append(getattr(self, f"weight_{index}"))
            elif isinstance(given, SizeOf):
                full.append(tensors[given.tensor].shape[given.dim])
            else:
                full.append(tensors[given])
        return self.graph(*full)


class SizeOf:
    def __init__(self, tensor: int, dim: int) -> None:
        self.tensor, self.dim = tensor, dim


class NoBackward(torch.autograd.Function):
    """Lets results through; whoever asks for gradients hears why there are none."""

    @staticmethod
    def forward(ctx: Any, result: Tensor, *weights: Tensor) -> Tensor:
        return result.view_as(result)

    @staticmethod
    def backward(ctx: Any, *gradients: Any) -> Any:
        raise GearshiftError(
            'torch.compile(backend="gearshift") runs inference only: call under torch.no_grad(),'
            " or compile the training step with another backend"
        )


def compiled(
    graph: torch.fx.GraphModule, example: Sequence[Any], replace: Replace
) -> Callable[..., Any]:
    """A stand-in for the graph, made at its first call, when real weights are at hand."""
    placeholders = [node for node in graph.graph.nodes if node.op == "placeholder"]
    is_weight = [_is_weight(node) for node in placeholders]
    serve: Callable[..., Any] | None = None
    frozen: list[Any] = []

    def call(*inputs: Any) -> Any:
        nonlocal serve
        tensors = tuple(i for i, w in zip(inputs, is_weight, strict=True) if _free(i, w))
        weights = [i for i, w in zip(inputs, is_weight, strict=True) if w]
        if torch.is_grad_enabled() and any(t.requires_grad for t in tensors):
            return graph(*inputs)
        if serve is None:
            with torch.no_grad():
                module = Frozen(graph, _places(placeholders, is_weight, inputs)).eval()
                serve = replace(module, tensors)
            frozen[:] = weights
        if any(a is not b for a, b in zip(weights, frozen, strict=True)):
            return graph(*inputs)
        results = serve(*tensors)
        asked = [w for w in weights if w.requires_grad] if torch.is_grad_enabled() else []
        return tuple(_refusing(result, asked) for result in results) if asked else results

    return call


def _refusing(result: Any, weights: list[Tensor]) -> Any:
    if not isinstance(result, Tensor) or not result.is_floating_point():
        return result
    return NoBackward.apply(result, *weights)  # type: ignore[no-untyped-call]


def _free(given: Any, is_weight: bool) -> bool:
    return isinstance(given, Tensor) and not is_weight


def _is_weight(node: torch.fx.Node) -> bool:
    """A parameter or buffer of a module, by what torch remembers of where it came from."""
    source = getattr(node, "_dynamo_source", None)
    name = source.name if source is not None else node.name
    name = name() if callable(name) else name
    return "_parameters" in name or "_buffers" in name or ".weight" in name or ".bias" in name


def _places(
    placeholders: list[torch.fx.Node], is_weight: list[bool], inputs: Sequence[Any]
) -> list[Any]:
    """For each input: the weight itself, its number among the tensors, or the size it is."""
    places: list[Any] = []
    sizes: dict[str, SizeOf] = {}
    number = 0
    for node, weight, given in zip(placeholders, is_weight, inputs, strict=True):
        if _free(given, weight):
            for dim, size in enumerate(node.meta["example_value"].shape):
                sizes.setdefault(str(size), SizeOf(number, dim))
            places.append(number)
            number += 1
        else:
            places.append(given)
    for index, (node, given) in enumerate(zip(placeholders, inputs, strict=True)):
        if not isinstance(given, Tensor):
            places[index] = sizes[str(node.meta["example_value"])]
    return places
