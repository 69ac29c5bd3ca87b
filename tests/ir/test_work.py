"""Work counted from the graph: known layers, any sizes."""

import pytest
import torch
from torch import nn

from gearshift.act.executor import key_of
from gearshift.act.labels import Labels
from gearshift.capture.load import capture
from gearshift.ir.work import Work


class Recurrent(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.lstm = nn.LSTM(8, 16)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.lstm(x)[0]


class Attention(nn.Module):
    def forward(self, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
        return nn.functional.scaled_dot_product_attention(q, k, v)


def work(model: nn.Module, *inputs: torch.Tensor, at: tuple[torch.Tensor, ...] = ()) -> Work:
    program = capture(model.eval(), inputs, {})
    found = Labels(program.by_name[""]).of(key_of(at or inputs)).work
    assert found is not None
    return found


def test_a_linear_layer_multiplies_and_adds() -> None:
    counted = work(nn.Linear(32, 64, bias=False), torch.randn(4, 32))
    assert counted.flops == 2 * 4 * 32 * 64
    assert counted.set_bytes == 4 * (4 * 32 + 32 * 64 + 4 * 64)


def test_sizes_are_those_of_the_call() -> None:
    small, large = torch.randn(4, 32), torch.randn(40, 32)
    model = nn.Linear(32, 64, bias=False)
    assert work(model, small, at=(large,)).flops == 10 * work(model, small).flops


def test_a_convolution() -> None:
    counted = work(nn.Conv2d(3, 8, 3, padding=1, bias=False), torch.randn(2, 3, 16, 16))
    assert counted.flops == 2 * (2 * 8 * 16 * 16) * (3 * 3 * 3)


def test_a_transposed_convolution() -> None:
    counted = work(nn.ConvTranspose2d(3, 8, 2, stride=2, bias=False), torch.randn(2, 3, 16, 16))
    assert counted.flops == 2 * (2 * 3 * 16 * 16) * (8 * 2 * 2)


def test_a_recurrent_layer_by_steps() -> None:
    counted = work(Recurrent(), torch.randn(5, 3, 8))
    assert counted.flops == pytest.approx(2 * 5 * 3 * 4 * 16 * (8 + 16), rel=0.1)


def test_attention_grows_with_the_square_of_the_length() -> None:
    short, long = (tuple(torch.randn(2, 4, n, 8) for _ in range(3)) for n in (8, 16))
    ratio = work(Attention(), *short, at=long).flops / work(Attention(), *short).flops
    assert ratio == pytest.approx(4, rel=0.2)


def test_a_lookup_moves_what_it_finds_and_not_the_whole_table() -> None:
    counted = work(nn.Embedding(1000, 16), torch.randint(1000, (4, 8)))
    found_bytes, index_bytes = 4 * (4 * 8 * 16), 8 * (4 * 8)
    assert counted.moved_bytes == 2 * found_bytes + index_bytes
    assert counted.set_bytes == counted.moved_bytes
