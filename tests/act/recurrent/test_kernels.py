"""Every kernel gives what torch's own function gives, state in to state out."""

import pytest
import torch
from torch import nn

from gearshift.act.backends.protocol import Order
from gearshift.act.engines import parse_engine
from gearshift.act.recurrent.cell import Cell
from gearshift.act.recurrent.choice import fastest
from gearshift.act.recurrent.kernels import (
    build_kernel,
    by_torch,
    kernels_for,
    written_out,
)
from gearshift.act.verify import error_between
from gearshift.errors import CompileError
from gearshift.ir.recurrent import GRU, LSTM, RELU, TANH
from gearshift.plan.rewrite import Rewrite
from gearshift.plan.unroll import AT_ONCE, Steps

MODULES = {LSTM: nn.LSTM, GRU: nn.GRU, TANH: nn.RNN, RELU: nn.RNN}
ORDER = Order(
    fragment=None,  # type: ignore[arg-type]
    ops=("some",),
    rewrite=Rewrite(),
    engine=parse_engine("caller"),
)


def cell(kind: str, *, bias: bool = True, proj_size: int = 0) -> Cell:
    torch.manual_seed(0)
    extra = {"nonlinearity": "relu"} if kind == RELU else {}
    extra |= {"proj_size": proj_size} if proj_size else {}
    module = MODULES[kind](5, 6, bias=bias, **extra)
    weights = tuple(weight.detach() for weight in module._flat_weights)
    return Cell(kind=kind, weights=weights, has_biases=bias)


def given(one: Cell, num_steps: int = 7, num_rows: int = 3) -> tuple[torch.Tensor, tuple]:  # type: ignore[type-arg]
    x = torch.randn(num_steps, num_rows, one.input_size)
    return x, tuple(torch.randn(1, num_rows, size) for size in one.state_sizes())


def assert_alike(one: Cell, kernel: object, num_steps: int = 7) -> None:
    x, state = given(one, num_steps)
    wanted, after = by_torch(one)(x, state)
    got, left = kernel(x, state)  # type: ignore[operator]
    for want, have in zip((wanted, *after), (got, *left), strict=True):
        assert error_between(want, have) < 1e-5


@pytest.mark.capability("rnn.kernels")
@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("kind", MODULES)
def test_every_kernel_that_can_compute_a_cell_does(kind: str, bias: bool) -> None:
    one = cell(kind, bias=bias)
    for name in kernels_for(kind, torch.float32, projected=False) - {"inductor"}:
        kernel = build_kernel(name, one, ORDER, num_steps=7, num_rows=3)
        for num_steps in (7, 1, 12):
            assert_alike(one, kernel, num_steps)


@pytest.mark.parametrize("kind", MODULES)
@pytest.mark.parametrize("proj_size", [0, 4])
def test_cells_written_out_step_by_step_are_the_same(kind: str, proj_size: int) -> None:
    if proj_size and kind != LSTM:
        return
    one = cell(kind, proj_size=proj_size)

    def kernel(x: torch.Tensor, state: tuple[torch.Tensor, ...]) -> object:
        y, *after = written_out(one, one.weights, x, state)
        return y, tuple(after)

    assert_alike(one, kernel)


@pytest.mark.capability("rnn.unrolled")
def test_a_chunk_of_cells_is_compiled_as_one() -> None:
    one = cell(LSTM)
    kernel = build_kernel("inductor", one, ORDER, num_steps=2, num_rows=3)
    assert_alike(one, kernel, 2)
    assert_alike(one, kernel, 5)


def test_projections_are_for_torch_alone() -> None:
    assert kernels_for(LSTM, torch.float32, projected=True) <= {"torch", "inductor"}
    assert kernels_for(GRU, torch.float64, projected=False) <= {"torch", "inductor"}


def test_the_fastest_is_measured_and_proven() -> None:
    one = cell(LSTM)
    assert_alike(one, fastest(one, AT_ONCE, ORDER, 7, 3))
    assert_alike(one, fastest(one, Steps(then=2, kernel="onnxruntime"), ORDER, 7, 3))


def test_a_kernel_that_is_wrong_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    from gearshift.act.recurrent import kernels

    def wrong(one: Cell) -> object:
        right = by_torch(one)

        def run(x: torch.Tensor, state: tuple[torch.Tensor, ...]) -> object:
            y, after = right(x, state)
            return y * 1.001, after

        return run

    monkeypatch.setattr(kernels, "by_onednn", wrong)
    with pytest.raises(CompileError, match="kernel onednn differs"):
        fastest(cell(LSTM), Steps(kernel="onednn"), ORDER, 7, 3)
