"""Recurrent models for benchmarks, by names that tell their sizes: `lstm_l2_h256_t100_b8_uniform`.

`ragged` lengths are drawn evenly, `skewed` ones by u^4; `_padded` at the end runs such a batch
without packing it; `streaming` models take their state and return it. `silero` is Silero VAD with
its real weights, so many windows of 32 ms at a time. Must not know who runs them.
"""

import re
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

from gearshift.bench.models import package_folder

UNIFORM, RAGGED, SKEWED, STREAMING = "uniform", "ragged", "skewed", "streaming"
PADDED = "_padded"
KINDS: dict[str, Any] = {"lstm": nn.LSTM, "gru": nn.GRU}
NAME = re.compile(
    r"(?P<kind>lstm|gru|silero)_l(?P<layers>\d+)_h(?P<hidden>\d+)_t(?P<steps>\d+)_b(?P<rows>\d+)"
    r"_(?P<lengths>uniform|ragged|skewed|streaming)(?P<padded>_padded)?"
)
INPUT_SIZE = SILERO_HIDDEN = 128
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


class SileroVad(nn.Module):
    """Is it speech? For each window of 512 samples at 16 kHz, with the 64 before it: magnitudes of
    a Fourier transform, four convolutions, an LSTM over the windows, a probability."""

    def __init__(self) -> None:
        super().__init__()
        self.transform = nn.Conv1d(1, 258, 256, stride=128, bias=False)
        widths, strides = (129, 128, 64, 64, 128), (1, 2, 2, 1)
        self.convolutions = nn.ModuleList(
            nn.Conv1d(narrow, wide, 3, stride=stride, padding=1)
            for narrow, wide, stride in zip(widths[:-1], widths[1:], strides, strict=True)
        )
        self.rnn = nn.LSTM(SILERO_HIDDEN, SILERO_HIDDEN, batch_first=True)
        self.speech = nn.Linear(SILERO_HIDDEN, 1)

    def forward(
        self, windows: Tensor, state: tuple[Tensor, Tensor]
    ) -> tuple[Tensor, tuple[Tensor, Tensor]]:
        """(rows, windows, 576 samples) to (rows, windows, 1)."""
        samples = nn.functional.pad(windows.flatten(0, 1), (0, 64), mode="reflect")
        real, imaginary = self.transform(samples.unsqueeze(1)).chunk(2, 1)
        y = (real**2 + imaginary**2).sqrt()
        for convolution in self.convolutions:
            y = convolution(y).relu()
        y, state = self.rnn(y.squeeze(-1).unflatten(0, windows.shape[:2]), state)
        return self.speech(y.relu()).sigmoid(), state


def _silero(steps: int, rows: int) -> Built:
    file = package_folder("silero_vad") / "data" / "silero_vad.jit"
    weights = torch.jit.load(file).state_dict()  # type: ignore[no-untyped-call]
    names = {
        "transform.weight": "stft.forward_basis_buffer",
        "speech.bias": "decoder.decoder.2.bias",
    }
    for number in range(4):
        for part in ("weight", "bias"):
            names[f"convolutions.{number}.{part}"] = f"encoder.{number}.reparam_conv.{part}"
    for part in ("weight_ih", "weight_hh", "bias_ih", "bias_hh"):
        names[f"rnn.{part}_l0"] = f"decoder.rnn.{part}"
    state = {mine: weights[f"_model.{its}"] for mine, its in names.items()}
    state["speech.weight"] = weights["_model.decoder.decoder.2.weight"].squeeze(-1)
    model = SileroVad()
    model.load_state_dict(state)
    generator = torch.Generator().manual_seed(0)
    windows = 0.1 * torch.randn(rows, steps, 576, generator=generator)
    before = torch.zeros(1, rows, SILERO_HIDDEN)
    return model.eval(), (windows, (before, before.clone()))


def __getattr__(name: str) -> Callable[[], Built]:
    """A factory for any name of that form."""
    found = NAME.fullmatch(name)
    if found is None:
        raise AttributeError(name)
    return lambda: _built(found)


def _built(found: re.Match[str]) -> Built:
    layers, hidden, steps, rows = (int(found[n]) for n in ("layers", "hidden", "steps", "rows"))
    if found["kind"] == "silero":
        return _silero(steps, rows)
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
