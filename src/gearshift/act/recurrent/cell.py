"""One direction of one recurrent layer: its weights, and a whole stack of them read off a graph.

Must not know how a step is computed.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from gearshift.capture.program import Cut, Fragment
from gearshift.capture.recurrent import PARAMS, kind_of, stack_from
from gearshift.ir import kinds
from gearshift.ir.recurrent import GATES, LSTM, Stack


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Cell:
    kind: str
    weights: tuple[Tensor, ...]
    """As torch has them: of the input, of the state, then biases and a projection, if any."""
    has_biases: bool
    reverse: bool = False
    """Whether it goes through a sequence from its end."""

    @property
    def input_size(self) -> int:
        return self.weights[0].shape[1]

    @property
    def hidden_size(self) -> int:
        return self.weights[0].shape[0] // GATES[self.kind]

    @property
    def made_size(self) -> int:
        return self.weights[1].shape[1]

    @property
    def projection(self) -> Tensor | None:
        return self.weights[-1] if len(self.weights) % 2 else None

    @property
    def dtype(self) -> torch.dtype:
        return self.weights[0].dtype

    @property
    def biases(self) -> tuple[Tensor, ...]:
        return self.weights[2:4] if self.has_biases else ()

    def state_sizes(self) -> tuple[int, ...]:
        """Of the state's parts, for one row."""
        both = (self.made_size, self.hidden_size)
        return both if self.kind == LSTM else both[:1]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Cells:
    """A recurrent region: its cells, and which of the op's arguments and results are where."""

    stack: Stack
    layers: tuple[tuple[Cell, ...], ...]
    """For each layer, one for each direction."""
    cut: Cut
    input: int
    """Where it is among the region's inputs."""
    lengths: int | None
    states: tuple[int, ...]
    outputs: tuple[int, ...]
    """Which of the op's results each of the region's outputs is."""


def cells_of(fragment: Fragment, op: str) -> Cells | None:
    """None if it is no op of ours, or computes its own weights."""
    if fragment.fx is None or fragment.graph.by_name[op].kind != kinds.RECURRENT:
        return None
    cut = fragment.fx.cut((op,), {})
    nodes = list(cut.body.graph.nodes)
    call = next(node for node in nodes if node.op == "call_function")
    kind, ragged = kind_of(call.target)
    places = {node: i for i, node in enumerate(n for n in nodes if n.op == "placeholder")}
    count = len(cut.inputs)
    if not str(call.target).startswith("gearshift."):
        return None
    hx = call.args[1 + ragged]
    params = call.args[2 + ragged]
    states = tuple(places[node] for node in (hx if kind == LSTM else (hx,)))
    given = (places[call.args[0]], *((places[call.args[1]],) if ragged else ()), *states)
    if max(given) >= count or any(places[node] < count for node in params):
        return None
    weights = dict(zip(places, (*cut.inputs, *cut.weights), strict=True))
    tensors = [fragment.weights[weights[node]] for node in params]
    stack = stack_from(call.target, call.args, tensors)
    taken = [node.args[1] for node in nodes if node.op == "call_function" and node is not call]
    return Cells(
        stack=stack,
        layers=_layers(stack, tensors),
        cut=cut,
        input=given[0],
        lengths=given[1] if ragged else None,
        states=states,
        outputs=tuple(taken),
    )


def _layers(stack: Stack, params: Sequence[Tensor]) -> tuple[tuple[Cell, ...], ...]:
    count = PARAMS[stack.has_biases] + (stack.out_size is not None)
    cells = [
        Cell(
            kind=stack.kind,
            weights=tuple(params[start : start + count]),
            has_biases=stack.has_biases,
            reverse=bool(start // count % stack.num_directions),
        )
        for start in range(0, len(params), count)
    ]
    each = stack.num_directions
    return tuple(tuple(cells[i : i + each]) for i in range(0, len(cells), each))


def stacks_of(fragment: Fragment) -> Mapping[str, Stack]:
    """Of every recurrent op that can be unrolled."""
    found: dict[str, Any] = {op.name: cells_of(fragment, op.name) for op in fragment.graph.ops}
    return {name: cells.stack for name, cells in found.items() if cells is not None}
