"""`torch.compile(model, backend="gearshift")`: each graph torch hands over becomes a runtime.

Weights arrive as inputs there: they are frozen by identity. Backward is refused aloud.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from gearshift.errors import GearshiftError

Replace = Callable[[nn.Module, tuple[Tensor, ...]], Callable[..., Any]]


@dataclass(frozen=True, slots=True)
class Free:
    """An input that stays one: its number among the tensors given."""

    tensor: int


@dataclass(frozen=True, slots=True)
class SizeOf:
    """A number that is a size of one of them."""

    tensor: int
    dim: int


@dataclass(frozen=True, slots=True)
class Fixed:
    """A weight, or a number no tensor shows: frozen, and checked on every call."""

    value: Any


Place = Free | SizeOf | Fixed


class Frozen(nn.Module):
    """The graph with its weights in their places and sizes read off the tensors that have them."""

    def __init__(self, graph: torch.fx.GraphModule, places: Sequence[Place]) -> None:
        super().__init__()
        self.graph = graph
        self.places = list(places)
        for index, place in enumerate(places):
            value = place.value if isinstance(place, Fixed) else None
            if isinstance(value, nn.Parameter):
                self.register_parameter(f"weight_{index}", value)
            elif isinstance(value, Tensor):
                self.register_buffer(f"weight_{index}", value)

    def forward(self, *tensors: Tensor) -> Any:
        return self.graph(*(self._fill(i, place, tensors) for i, place in enumerate(self.places)))

    def _fill(self, index: int, place: Place, tensors: Sequence[Tensor]) -> Any:
        if isinstance(place, Free):
            return tensors[place.tensor]
        if isinstance(place, SizeOf):
            return tensors[place.tensor].shape[place.dim]
        held = isinstance(place.value, Tensor)
        return getattr(self, f"weight_{index}") if held else place.value


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


def compiled(graph: torch.fx.GraphModule, replace: Replace) -> Callable[..., Any]:
    """A stand-in for the graph, made at its first call, when real weights are at hand."""
    placeholders = [node for node in graph.graph.nodes if node.op == "placeholder"]
    serve: Callable[..., Any] | None = None
    places: list[Place] = []

    def call(*inputs: Any) -> Any:
        nonlocal serve
        if serve is None:
            places[:] = _places(placeholders, inputs)
        pairs = list(zip(places, inputs, strict=True))
        tensors = tuple(given for place, given in pairs if isinstance(place, Free))
        fixed = [(place.value, given) for place, given in pairs if isinstance(place, Fixed)]
        wants_gradient = torch.is_grad_enabled() and any(t.requires_grad for t in tensors)
        if wants_gradient or not all(_same(value, given) for value, given in fixed):
            return graph(*inputs)
        if serve is None:
            with torch.no_grad():
                serve = replace(Frozen(graph, places).eval(), tensors)
        results = serve(*tensors)
        weights = [given for _, given in fixed if isinstance(given, Tensor)]
        asked = [w for w in weights if w.requires_grad] if torch.is_grad_enabled() else []
        return tuple(_refusing(result, asked) for result in results) if asked else results

    return call


def _same(value: Any, given: Any) -> bool:
    return value is given if isinstance(value, Tensor) else bool(value == given)


def _refusing(result: Any, weights: list[Tensor]) -> Any:
    if not isinstance(result, Tensor) or not result.is_floating_point():
        return result
    return NoBackward.apply(result, *weights)  # type: ignore[no-untyped-call]


def _is_weight(node: torch.fx.Node) -> bool:
    """A parameter or buffer of a module, by what torch remembers of where it came from."""
    source = getattr(node, "_dynamo_source", None)
    name = source.name if source is not None else node.name
    name = name() if callable(name) else name
    return any(mark in name for mark in ("_parameters", "_buffers", ".weight", ".bias"))


def _places(placeholders: Sequence[torch.fx.Node], inputs: Sequence[Any]) -> list[Place]:
    places: list[Place] = []
    sizes: dict[str, SizeOf] = {}
    number = 0
    for node, given in zip(placeholders, inputs, strict=True):
        if isinstance(given, Tensor) and not _is_weight(node):
            for dim, size in enumerate(node.meta["example_value"].shape):
                sizes.setdefault(str(size), SizeOf(number, dim))
            places.append(Free(number))
            number += 1
        else:
            places.append(Fixed(given))
    for index, node in enumerate(placeholders):
        if not isinstance(inputs[index], Tensor):
            places[index] = sizes.get(str(node.meta["example_value"]), places[index])
    return places
