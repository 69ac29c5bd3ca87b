"""Recurrent layers of torch kept as one op each while a model is captured, at any length.

torch.export would trace them step by step, which takes long and fixes the length. Packed sequences
become padded batches with lengths, by `RaggedCall`. Must not know how the ops are run;
`act/recurrent/` does.
"""

import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch import _VF, Tensor, nn
from torch.nn.utils.rnn import PackedSequence, pack_padded_sequence, pad_packed_sequence

from gearshift.ir.recurrent import GATES, GRU, LSTM, RELU, TANH, Stack

KINDS = (LSTM, GRU, TANH, RELU)
_ORIGINALS: dict[str, Callable[..., Any]] = {kind: getattr(_VF, kind) for kind in KINDS}
BUCKET = 32
"""Steps of a padded batch are a multiple of this."""
PARAMS = {False: 2, True: 4}
"""Of one direction of a layer, without and with biases; a projection is one more."""


def _by_packing(
    kind: str, input: Tensor, lengths: Tensor, hx: Any, params: list[Tensor], settings: Any
) -> list[Tensor]:
    """As torch does it: rows of their lengths, packed; what lies beyond an end is zero."""
    packed = pack_padded_sequence(input, lengths, enforce_sorted=False)
    states = hx if kind == LSTM else [hx]
    placed = [state.index_select(1, packed.sorted_indices) for state in states]
    given = placed if kind == LSTM else placed[0]
    data, *finals = _ORIGINALS[kind](packed.data, packed.batch_sizes, given, params, *settings)
    output, _ = pad_packed_sequence(packed._replace(data=data), total_length=input.shape[0])
    back = packed.unsorted_indices
    return [output.contiguous(), *(final.index_select(1, back) for final in finals)]


def _op(kind: str, *, ragged: bool) -> Any:
    """A kind as one op: of a batch, or of rows with lengths of their own."""
    state, states = ("Tensor[] hx", 2) if kind == LSTM else ("Tensor hx", 1)
    lengths, last = (", Tensor lengths", "") if ragged else ("", ", bool batch_first")
    schema = (
        f"(Tensor input{lengths}, {state}, Tensor[] params, bool has_biases, int num_layers,"
        f" float dropout, bool train, bool bidirectional{last}) -> ({_tensors(1 + states)})"
    )

    def run(input: Tensor, *args: Any) -> tuple[Tensor, ...]:
        if ragged:
            lengths, hx, params, *settings = args
            return tuple(_by_packing(kind, input, lengths, hx, params, settings))
        output, *finals = _ORIGINALS[kind](input, *args)
        return output.contiguous(), *finals  # its strides depend on the kernel torch picks

    def fake(input: Tensor, *args: Any) -> tuple[Tensor, ...]:
        hx, settings = args[ragged], args[2 + ragged :]
        finals = hx if kind == LSTM else [hx]
        if ragged:
            _same_rows(input, args[0], finals[0])
        return _sequence(input, finals[0], settings), *map(_empty, finals)

    name = f"gearshift::{kind}_ragged" if ragged else f"gearshift::{kind}"
    op = torch.library.custom_op(name, run, mutates_args=(), schema=schema)
    op.register_fake(fake)
    return op


def _tensors(count: int) -> str:
    return ", ".join(["Tensor"] * count)


def _same_rows(input: Tensor, lengths: Tensor, hidden: Tensor) -> None:
    check: Callable[[bool], None] = torch._check
    check(input.shape[1] == lengths.shape[0])
    check(input.shape[1] == hidden.shape[1])


def _sequence(input: Tensor, hidden: Tensor, settings: Sequence[Any]) -> Tensor:
    """The output over time: as the input, with the hidden sizes of all directions side by side."""
    directions = 2 if settings[4] else 1
    return input.new_empty((*input.shape[:-1], hidden.shape[-1] * directions))


def _empty(like: Tensor) -> Tensor:
    return like.new_empty(like.shape)


WHOLE: dict[str, Any] = {kind: _op(kind, ragged=False) for kind in KINDS}
RAGGED: dict[str, Any] = {kind: _op(kind, ragged=True) for kind in KINDS}


def torch_function(kind: str) -> Callable[..., Any]:
    """Torch's own, whatever is being captured meanwhile."""
    return _ORIGINALS[kind]


@contextmanager
def kept_whole() -> Iterator[None]:
    """Inside, modules that call torch's recurrent functions leave one op in the trace. On this
    thread: others may train such a module meanwhile, or capture one."""
    before = getattr(_captures.here, "under_way", False)
    _captures.add(1)
    _captures.here.under_way = True
    try:
        yield
    finally:
        _captures.here.under_way = before
        _captures.add(-1)


class _Captures:
    """How many are under way: while there are none, torch's own functions are in place."""

    def __init__(self) -> None:
        self.here = threading.local()
        self._count, self._lock = 0, threading.Lock()

    def add(self, change: int) -> None:
        with self._lock:
            self._count += change
            for kind in KINDS:
                setattr(_VF, kind, _instead(kind) if self._count else _ORIGINALS[kind])


_captures = _Captures()


def _instead(kind: str) -> Callable[..., Any]:
    def call(*args: Any) -> Any:
        if not getattr(_captures.here, "under_way", False):
            return _ORIGINALS[kind](*args)
        packed = isinstance(args[1], Tensor) and not args[1].is_floating_point()
        if packed or args[0].dim() != 3:  # batch sizes of a PackedSequence, or no batch
            return _ORIGINALS[kind](*args)
        hx = list(args[1]) if kind == LSTM else args[1]
        return WHOLE[kind](args[0], hx, list(args[2]), *args[3:])

    return call


class RaggedCall(nn.Module):
    """A recurrent module that is given a packed sequence, with a padded batch, its lengths and the
    state for arguments instead."""

    def __init__(self, module: nn.RNNBase) -> None:
        super().__init__()
        self.module = module

    def forward(self, input: Tensor, lengths: Tensor, *state: Tensor) -> tuple[Tensor, ...]:
        module = self.module
        kind = module.mode.lower()
        hx: Any = list(state) if kind == LSTM else state[0]
        settings = (module.bias, module.num_layers, 0.0, False, module.bidirectional)
        weights = [getattr(module, name) for name in module._flat_weights_names]
        results: tuple[Tensor, ...] = RAGGED[kind](input, lengths, hx, weights, *settings)
        return results


def takes_packed(module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> bool:
    """Whether this call of it is one that `RaggedCall` can stand for."""
    given = args[0] if args else kwargs.get("input")
    own = type(module) in (nn.LSTM, nn.GRU, nn.RNN)
    return own and isinstance(given, PackedSequence) and not module.training


def padded(module: nn.RNNBase, input: PackedSequence, hx: Any = None) -> tuple[Tensor, ...]:
    """What `RaggedCall` is given: rows in the order of the packed data, the longest first. The
    number of steps is rounded up, so that few different ones come."""
    in_order = input._replace(sorted_indices=None, unsorted_indices=None)
    num_steps = -(-len(input.batch_sizes) // BUCKET) * BUCKET
    batch, lengths = pad_packed_sequence(in_order, total_length=num_steps)
    if hx is None:
        return batch, lengths, *_zeros(module, batch)
    state = tuple(hx) if module.mode == "LSTM" else (hx,)
    if input.sorted_indices is not None:
        state = tuple(part.index_select(1, input.sorted_indices) for part in state)
    return batch, lengths, *state


def repacked(
    module: nn.RNNBase, input: PackedSequence, lengths: Tensor, results: Sequence[Tensor]
) -> tuple[PackedSequence, Any]:
    """As the module itself returns it."""
    output, *state = results
    back = input.unsorted_indices
    if back is not None:
        state = [part.index_select(1, back) for part in state]
    data = pack_padded_sequence(output, lengths).data
    packed = PackedSequence(data, input.batch_sizes, input.sorted_indices, back)
    return packed, (tuple(state) if module.mode == "LSTM" else state[0])


def _zeros(module: nn.RNNBase, batch: Tensor) -> tuple[Tensor, ...]:
    count = module.num_layers * (2 if module.bidirectional else 1)
    hidden = batch.new_zeros(count, batch.shape[1], module.proj_size or module.hidden_size)
    if module.mode != "LSTM":
        return (hidden,)
    return hidden, batch.new_zeros(count, batch.shape[1], module.hidden_size)


def stack_from(target: Any, args: Sequence[Any], weights: Sequence[Tensor]) -> Stack:
    """Of one of these ops, from what it is called with and its weights."""
    kind, ragged = kind_of(target)
    has_biases, num_layers, _, _, bidirectional, *rest = args[3 + ragged :]
    gates, input_size = weights[0].shape
    hidden, made = gates // GATES[kind], weights[1].shape[1]
    return Stack(
        kind=kind,
        num_layers=num_layers,
        num_directions=2 if bidirectional else 1,
        input_size=input_size,
        hidden_size=hidden,
        out_size=None if made == hidden else made,
        has_biases=has_biases,
        batch_first=bool(rest and rest[0]),
        ragged=ragged,
        item_bytes=weights[0].element_size(),
    )


def kind_of(target: Any) -> tuple[str, bool]:
    """Kind, and whether its rows have lengths of their own."""
    name = str(target).split(".")[-2]
    return name.removesuffix("_ragged"), name.endswith("_ragged")


def onnx_translations() -> dict[Any, Any]:
    """The exporter's own translations of torch's ops serve ours; those it has none for are here."""
    from onnxscript.function_libs.torch_lib.ops.core import aten_gru, aten_lstm

    ops = torch.ops.gearshift
    return {
        ops.lstm.default: _sized(_unprojected(aten_lstm)),
        ops.gru.default: _sized(aten_gru),
        ops.rnn_tanh.default: _sized(_rnn("Tanh")),
        ops.rnn_relu.default: _sized(_rnn("Relu")),
    }


def _sized(translate: Any) -> Any:
    """A size of the state that was free and turned out to be one number is still told as an
    expression; translations want the number."""

    def translated(input: Any, hx: Any, params: Any, *settings: Any) -> Any:
        for state in hx if isinstance(hx, list | tuple) else (hx,):
            sizes = [int(str(n)) if str(n).isdigit() else n for n in map(_value, state.shape)]
            state.shape = type(state.shape)(sizes)
        return translate(input, hx, params, *settings)

    return translated


def _value(size: Any) -> Any:
    return getattr(size, "value", size)


def _unprojected(translate: Any) -> Any:
    def translated(input: Any, hx: Any, params: Any, *settings: Any) -> Any:
        hidden, cell = hx
        if hidden.shape[2] != cell.shape[2]:
            raise NotImplementedError("ONNX has no LSTM with projections")
        return translate(input, hx, params, *settings)

    return translated


def _rnn(activation: str) -> Any:
    def translated(
        input: Any,
        hx: Any,
        params: Any,
        has_biases: bool,
        num_layers: int,
        dropout: float,
        train: bool,
        bidirectional: bool,
        batch_first: bool,
    ) -> Any:
        from onnxscript.onnx_opset import opset18

        op: Any = opset18
        directions = 2 if bidirectional else 1
        count = PARAMS[has_biases]
        current = op.Transpose(input, perm=[1, 0, 2]) if batch_first else input
        finals = []
        for layer in range(num_layers):
            start = layer * directions
            mine = [
                params[(start + d) * count : (start + d + 1) * count] for d in range(directions)
            ]
            parts = [[op.Unsqueeze(p[i], [0]) for p in mine] for i in range(count)]
            joined = [op.Concat(*part, axis=0) for part in parts]
            biases = [op.Concat(joined[2], joined[3], axis=1)] if has_biases else [None]
            state = op.Slice(hx, [start], [start + directions], [0])
            output, final = op.RNN(
                current,
                *joined[:2],
                *biases,
                None,
                state,
                activations=[activation] * directions,
                direction="bidirectional" if bidirectional else "forward",
                hidden_size=hx.shape[2],
            )
            finals.append(final)
            current = op.Reshape(op.Transpose(output, perm=[0, 2, 1, 3]), [0, 0, -1])
        result = op.Transpose(current, perm=[1, 0, 2]) if batch_first else current
        return result, op.Concat(*finals, axis=0)

    return translated
