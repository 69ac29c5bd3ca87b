"""LSTM and GRU kept as one op each while a model is captured, at any length.

torch.export would trace them step by step, which takes long and fixes the length.
Must not know how they are run; `unroll` will.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import _VF, Tensor

_lstm, _gru = _VF.lstm, _VF.gru


@torch.library.custom_op("gearshift::lstm", mutates_args=())
def lstm(
    input: Tensor,
    hx: list[Tensor],
    params: list[Tensor],
    has_biases: bool,
    num_layers: int,
    dropout: float,
    train: bool,
    bidirectional: bool,
    batch_first: bool,
) -> tuple[Tensor, Tensor, Tensor]:
    settings = (has_biases, num_layers, dropout, train, bidirectional, batch_first)
    output, hidden, cell = _lstm(input, hx, params, *settings)
    return output.contiguous(), hidden, cell  # its strides depend on the kernel torch picks


@torch.library.custom_op("gearshift::gru", mutates_args=())
def gru(
    input: Tensor,
    hx: Tensor,
    params: list[Tensor],
    has_biases: bool,
    num_layers: int,
    dropout: float,
    train: bool,
    bidirectional: bool,
    batch_first: bool,
) -> tuple[Tensor, Tensor]:
    settings = (has_biases, num_layers, dropout, train, bidirectional, batch_first)
    output, hidden = _gru(input, hx, params, *settings)
    return output.contiguous(), hidden


@lstm.register_fake
def _(input: Tensor, hx: list[Tensor], params: Any, *settings: Any) -> tuple[Tensor, ...]:
    hidden, cell = hx
    return _sequence(input, hidden, settings), hidden.new_empty(hidden.shape), _empty(cell)


@gru.register_fake
def _(input: Tensor, hx: Tensor, params: Any, *settings: Any) -> tuple[Tensor, ...]:
    return _sequence(input, hx, settings), _empty(hx)


def _sequence(input: Tensor, hidden: Tensor, settings: Any) -> Tensor:
    """The output over time: as the input, with the hidden sizes of all directions side by side."""
    directions = 2 if settings[4] else 1
    return input.new_empty((*input.shape[:-1], hidden.shape[-1] * directions))


def _empty(like: Tensor) -> Tensor:
    return like.new_empty(like.shape)


@contextmanager
def kept_whole() -> Iterator[None]:
    """Inside, modules that call torch's LSTM or GRU leave one op in the trace."""
    _VF.lstm, _VF.gru = _instead(_lstm, lstm), _instead(_gru, gru)
    try:
        yield
    finally:
        _VF.lstm, _VF.gru = _lstm, _gru


def _instead(original: Callable[..., Any], op: Callable[..., Any]) -> Callable[..., Any]:
    def call(*args: Any) -> Any:
        packed = isinstance(args[1], Tensor) and not args[1].is_floating_point()
        if packed or args[0].dim() != 3:  # batch sizes of a PackedSequence, or no batch
            return original(*args)
        if op is lstm:
            return op(args[0], list(args[1]), list(args[2]), *args[3:])
        return op(args[0], args[1], list(args[2]), *args[3:])

    return call


def onnx_translations() -> dict[Any, Any]:
    """The exporter's own translations of torch's ops serve ours."""
    from onnxscript.function_libs.torch_lib.ops.core import aten_gru, aten_lstm

    return {
        torch.ops.gearshift.lstm.default: aten_lstm,
        torch.ops.gearshift.gru.default: aten_gru,
    }
