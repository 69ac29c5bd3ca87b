"""Kernels: so many steps of one cell in one call, state in and state out.

All give the same; which is fastest depends on sizes and machine, and is measured. Must not know
where in a sequence it is. States are (1, rows, size), sequences (steps, rows, size).
"""

import shutil
from collections.abc import Callable, Sequence
from dataclasses import replace
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from gearshift.act.backends import BACKENDS
from gearshift.act.backends.inductor import compile_graph
from gearshift.act.backends.protocol import Executable, Order
from gearshift.act.recurrent.cell import Cell
from gearshift.capture.recurrent import torch_function
from gearshift.ir.recurrent import GRU, LSTM, RELU
from gearshift.plan.rewrite import Rewrite
from gearshift.plan.unroll import COMPILED

if TYPE_CHECKING:
    from gearshift.capture.program import Cut

State = tuple[Tensor, ...]
Kernel = Callable[[Tensor, State], tuple[Tensor, State]]
TORCH, ONEDNN, CELLS = "torch", "onednn", COMPILED
SEQUENCE_OPS = ("onnxruntime", "openvino")
IDEEP_LSTM = 2
"""Its number for the kind of cell."""


def kernels_for(kind: str, dtype: torch.dtype, *, projected: bool) -> frozenset[str]:
    """Those that can compute such cells here."""
    found = {TORCH}
    if shutil.which("g++") is not None:
        found.add(CELLS)
    if dtype is torch.float32 and not projected:
        found.update(name for name in SEQUENCE_OPS if find_spec(name) and find_spec("onnx"))
        if kind == LSTM and torch.backends.mkldnn.is_available():  # type: ignore[no-untyped-call]
            found.add(ONEDNN)
    return frozenset(found)


def build_kernel(name: str, cell: Cell, order: Order, *, num_steps: int, num_rows: int) -> Kernel:
    """For chunks of any size, but for compiled cells: those are for this one. `order` says on which
    engine it will run."""
    if name == TORCH:
        return by_torch(cell)
    if name == ONEDNN:
        return by_onednn(cell)
    if name == CELLS:
        return by_compiled_cells(cell, order.threads, num_steps, num_rows)
    return by_sequence_op(name, cell, order)


def by_torch(cell: Cell) -> Kernel:
    """Torch's own function for one layer in one direction."""
    function, weights = torch_function(cell.kind), list(cell.weights)
    settings = (cell.has_biases, 1, 0.0, False, False, False)
    whole = cell.kind == LSTM

    def run(x: Tensor, state: State) -> tuple[Tensor, State]:
        y, *after = function(x, state if whole else state[0], weights, *settings)
        return y, tuple(after)

    return run


def by_onednn(cell: Cell) -> Kernel:
    """The fused sequence of oneDNN on weights that were laid out for it once: torch's own function
    does that in every call."""
    w_ih, w_hh = cell.weights[:2]
    hidden = cell.hidden_size
    reorder = torch.ops.mkldnn._reorder_mkldnn_rnn_layer_weight
    packed = reorder(w_ih, w_hh, hidden, False, cell.has_biases, False)
    biases = cell.biases or (torch.zeros(w_ih.shape), torch.zeros(w_hh.shape))
    layer = torch.ops.aten.mkldnn_rnn_layer.default
    settings: tuple[Any, ...] = (False, [])
    settings += (IDEEP_LSTM, hidden, 1, cell.has_biases, False, False, False)

    def run(x: Tensor, state: State) -> tuple[Tensor, State]:
        h, c = (part.contiguous() for part in state)  # it does not look at strides
        y, h, c, _ = layer(x.contiguous(), *packed, *biases, h, c, *settings)
        return y, (h, c)

    return run


def by_sequence_op(backend: str, cell: Cell, order: Order) -> Kernel:
    """The LSTM, GRU or RNN of ONNX, by a backend that runs it as one."""
    from gearshift.act.recurrent.onnx_cell import onnx_cut  # needs onnx

    part: Cut = onnx_cut(cell)
    rewrite = Rewrite(backend=backend, threads=order.threads)
    return SequenceOp(BACKENDS[backend].build(replace(order, rewrite=rewrite, part=part)))


class SequenceOp:
    """A kernel that a backend built."""

    __slots__ = ("_call", "threads")

    def __init__(self, built: Executable) -> None:
        self._call = built.run
        self.threads = built.threads
        """Of its own, that may be held on some of the cores."""

    def __call__(self, x: Tensor, state: State) -> tuple[Tensor, State]:
        y, *after = self._call(x, *state)
        return y, tuple(after)


def by_compiled_cells(cell: Cell, threads: int, num_steps: int, num_rows: int) -> Kernel:
    """So many steps written out and compiled as one; chunks of other sizes go through torch."""
    examples = [torch.empty(num_steps, num_rows, cell.input_size, dtype=cell.dtype)]
    examples += [torch.empty(1, num_rows, size, dtype=cell.dtype) for size in cell.state_sizes()]
    traced = _traced(cell, examples)
    forms: list[Any] = [(tuple(tensor.shape), tensor.dtype) for tensor in examples]
    forms += [(tuple(weight.shape), weight.dtype) for weight in cell.weights]
    artefact = compile_graph(traced, forms, threads, "")
    weights = [weight.contiguous() for weight in cell.weights]
    other, size = by_torch(cell), (num_steps, num_rows)

    def run(x: Tensor, state: State) -> tuple[Tensor, State]:
        if x.shape[:2] != size:
            return other(x, state)
        given = (x.contiguous(), *(part.contiguous() for part in state))
        y, *after = artefact(*given, *weights)
        return y, tuple(after)

    return run


def _traced(cell: Cell, examples: Sequence[Tensor]) -> torch.fx.GraphModule:
    from torch.fx.experimental.proxy_tensor import make_fx

    count = len(examples)

    def steps(*given: Tensor) -> tuple[Tensor, ...]:
        x, *state = given[:count]
        return written_out(cell, given[count:], x, tuple(state))

    with torch.no_grad():
        traced: torch.fx.GraphModule = make_fx(steps)(*examples, *cell.weights)
    return traced


def written_out(
    cell: Cell, weights: Sequence[Tensor], x: Tensor, state: State
) -> tuple[Tensor, ...]:
    """Step by step in torch's plain ops: the inputs' product at once, then what depends on it."""
    biases = weights[2:4] if cell.has_biases else (None, None)
    products = torch.nn.functional.linear(x, weights[0], biases[0])
    parts = tuple(part[0] for part in state)
    outputs = []
    for product in products.unbind(0):
        parts = _next(cell, weights, product, biases[1], parts)
        outputs.append(parts[0])
    return torch.stack(outputs), *(part.unsqueeze(0) for part in parts)


def _next(
    cell: Cell, weights: Sequence[Tensor], product: Tensor, bias: Tensor | None, parts: State
) -> State:
    recurrent = torch.nn.functional.linear(parts[0], weights[1], bias)
    if cell.kind == LSTM:
        return _next_lstm(cell, weights, product + recurrent, parts[1])
    if cell.kind == GRU:
        r, z, n = product.chunk(3, -1)
        recurrent_r, recurrent_z, recurrent_n = recurrent.chunk(3, -1)
        reset, update = torch.sigmoid(r + recurrent_r), torch.sigmoid(z + recurrent_z)
        new = torch.tanh(n + reset * recurrent_n)
        return (new + update * (parts[0] - new),)
    total = product + recurrent
    return (torch.relu(total) if cell.kind == RELU else torch.tanh(total),)


def _next_lstm(cell: Cell, weights: Sequence[Tensor], gates: Tensor, c: Tensor) -> State:
    i, f, g, o = gates.chunk(4, -1)
    c = torch.sigmoid(f) * c + torch.sigmoid(i) * torch.tanh(g)
    h = torch.sigmoid(o) * torch.tanh(c)
    if cell.projection is not None:
        h = torch.nn.functional.linear(h, weights[-1])
    return h, c
