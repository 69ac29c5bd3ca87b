"""Every built-in model is reproducible and treats the rows of a batch separately.
Knows the zoo's public dictionary, not how any model is built.
"""

from functools import cache
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.utils._pytree import tree_leaves

from gearshift.capture.load import load
from gearshift.zoo import ZOO

every_model = pytest.mark.parametrize("name", ZOO)


@cache
def built(name: str) -> tuple[nn.Module, tuple[Any, ...]]:
    return ZOO[name]()


def rows(inputs: tuple[Tensor, ...], num_rows: int) -> tuple[Tensor, ...]:
    """The example's first row, repeated; every odd copy is reversed so that the rows differ."""
    firsts = [x[:1] for x in inputs]
    return tuple(torch.cat([x.flip(-1) if i % 2 else x for i in range(num_rows)]) for x in firsts)


@torch.no_grad()
def run(model: nn.Module, inputs: tuple[Tensor, ...]) -> list[Tensor]:
    return tree_leaves(model(*inputs))


@every_model
def test_two_builds_are_the_same_and_leave_the_global_generator_alone(name: str) -> None:
    model, inputs = built(name)
    before = torch.get_rng_state()
    again, inputs_again = ZOO[name]()
    assert torch.equal(torch.get_rng_state(), before)
    torch.testing.assert_close(dict(again.state_dict()), dict(model.state_dict()), rtol=0, atol=0)
    torch.testing.assert_close(inputs_again, inputs, rtol=0, atol=0)


@every_model
def test_weights_do_not_depend_on_the_callers_seed(name: str) -> None:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(12345)
        again, _ = ZOO[name]()
    expected = dict(built(name)[0].state_dict())
    torch.testing.assert_close(dict(again.state_dict()), expected, rtol=0, atol=0)


@every_model
def test_a_row_does_not_depend_on_the_rows_beside_it(name: str) -> None:
    model, inputs = built(name)
    assert not model.training
    alone, beside = run(model, rows(inputs, 1)), run(model, rows(inputs, 3))
    for one, three in zip(alone, beside, strict=True):
        assert three.shape == (3, *one.shape[1:])
        torch.testing.assert_close(three[:1], one, rtol=1e-4, atol=1e-4)


@every_model
def test_outputs_are_of_a_sane_size_and_depend_on_the_inputs(name: str) -> None:
    model, inputs = built(name)
    for output in run(model, rows(inputs, 2)):
        first, second = output
        assert 1e-2 < output.std() < 1e2
        assert (first - second).norm() > 0.05 * first.norm()


def test_a_name_with_a_number_has_so_many_times_the_rows() -> None:
    _, (one,) = load("mlp")
    _, (three,) = load("mlp@3")
    assert three.shape[0] == 3 * one.shape[0]
    assert torch.equal(three[: one.shape[0]], one)
