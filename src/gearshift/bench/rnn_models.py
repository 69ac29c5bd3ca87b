"""Recurrent models for benchmarks, by names that tell their sizes: `lstm_l2_h256_t100_b8_uniform`.

`ragged` lengths are drawn evenly, `skewed` ones by u^4; `_padded` at the end runs such a batch
without packing it; `streaming` models take their state and return it. Must not know who runs them.
"""

import re
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

UNIFORM, RAGGED, SKEWED, STREAMING = "uniform", "ragged", "skewed", "streaming"
PADDED = "_padded"
KINDS: dict[str, Any] = {"lstm": nn.LSTM, "gru": nn.GRU}
NAME = re.compile(
    r"(?P<kind>lstm|gru)_l(?P<layers>\d+)_h(?P<hidden>\d+)_t(?P<steps>\d+)_b(?P<rows>\d+)"
    r"_(?P<lengths>uniform|ragged|skewed|streaming)(?P<padded>_padded)?"
)
INPUT_SIZE = 128
Built = tuple[nn.Module, tuple[Any, ...]]


class Whole(nn.Module):
    """Every row as long as the sequence, or padded to it."""

    def __init__(self, rnn: nn.RNNBase) -> None:
        super().__init__()
        self.rnn = rnn

    def forward(self, x: Tensor) -> Tensor:
        states: Tensor = self.rnn(x)[0]
        return states


class Packed(Whole):
    """Rows of different lengths, packed as torch's documentation has it."""

    def forward(self, x: Tensor, lengths: Tensor) -> Tensor:  # type: ignore[override]
        packed = pack_padded_sequence(x, lengths, batch_first=True, enforce_sorted=False)
        states, _ = self.rnn(packed)
        padded: Tensor = pad_packed_sequence(states, batch_first=True, total_length=x.shape[1])[0]
        return padded


def __getattr__(name: str) -> Callable[[], Built]:
    """A factory for any name of that form."""
    found = NAME.fullmatch(name)
    if found is None:
        raise AttributeError(name)
    return lambda: _built(found)


def _built(found: re.Match[str]) -> Built:
    layers, hidden, steps, rows = (int(found[n]) for n in ("layers", "hidden", "steps", "rows"))
    generator = torch.Generator().manual_seed(0)
    rnn = KINDS[found["kind"]](INPUT_SIZE, hidden, num_layers=layers, batch_first=True).eval()
    x = torch.randn(rows, steps, INPUT_SIZE, generator=generator)
    if found["lengths"] == STREAMING:
        state = torch.zeros(layers, rows, hidden)
        return rnn, (x, (state, state.clone()) if found["kind"] == "lstm" else state)
    if found["lengths"] == UNIFORM or found["padded"]:
        return Whole(rnn).eval(), (x,)
    drawn = torch.rand(rows, generator=generator)
    share = drawn**4 if found["lengths"] == SKEWED else drawn
    lengths = (1 + share * (steps - 1)).long()
    lengths[0] = steps
    return Packed(rnn).eval(), (x, lengths)
