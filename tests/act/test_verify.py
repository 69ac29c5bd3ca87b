"""A plan that differs never serves: what counts as a difference."""

from collections.abc import Callable
from contextlib import suppress

import pytest
import torch
from torch import nn

import gearshift
from gearshift.act.backends import BACKENDS
from gearshift.act.backends.eager import EagerBackend
from gearshift.act.verify import Tolerance, compare, error_between
from gearshift.errors import VerifyError
from gearshift.plan import Rewrite
from gearshift.plan.cut import cover
from gearshift.plan.plan import whole
from gearshift.zoo import ZOO


@pytest.mark.parametrize(
    ("expected", "got", "error"),
    [
        (torch.tensor([2.0, 4.0]), torch.tensor([2.0, 5.0]), 0.25),
        (torch.tensor([1, 2]), torch.tensor([1, 2]), 0.0),
        (torch.tensor([1, 2]), torch.tensor([1, 3]), float("inf")),
        (torch.tensor([1.0]), torch.tensor([1.0]).double(), float("inf")),
        (torch.tensor([[1.0]]), torch.tensor([1.0]), float("inf")),
        (torch.tensor([float("nan"), 1.0]), torch.tensor([float("nan"), 1.0]), 0.0),
        (torch.tensor([float("inf"), 1.0]), torch.tensor([float("-inf"), 1.0]), float("inf")),
        (torch.tensor([float("nan"), 1.0]), torch.tensor([float("inf"), 1.0]), float("inf")),
        (torch.tensor([float("inf")]), torch.tensor([3.0]), float("inf")),
        (torch.empty(0), torch.empty(0), 0.0),
        ("a", "a", 0.0),
        (3, 4, float("inf")),
    ],
)
def test_error_between(expected: object, got: object, error: float) -> None:
    assert error_between(expected, got) == error


def test_a_result_built_otherwise_is_refused() -> None:
    x = torch.ones(2)
    with pytest.raises(VerifyError, match="built otherwise"):
        compare((x, x), [x, x], Tolerance(), "it")


class Tampered(EagerBackend):
    """One weight, changed by so much."""

    name = "tampered"
    weight, by = "", 0.0

    def build(self, order):  # type: ignore[no-untyped-def]
        from dataclasses import replace

        fragment = replace(order.fragment)
        noise = torch.randn(
            fragment.weights[self.weight].shape, generator=torch.Generator().manual_seed(1)
        )
        changed = fragment.weights[self.weight] * (1 + self.by * noise)
        fragment.__dict__["weights"] = {**fragment.weights, self.weight: changed}
        return super().build(replace(order, fragment=fragment))


@pytest.fixture
def tampered(monkeypatch: pytest.MonkeyPatch) -> Tampered:
    backend = Tampered()
    monkeypatch.setitem(BACKENDS, backend.name, backend)
    return backend


@pytest.mark.capability("core.verify")
@pytest.mark.parametrize("name", ["mlp", "minilm"])
def test_a_weight_changed_by_a_thousandth_is_caught(name: str, tampered: Tampered) -> None:
    model, example = ZOO[name]()
    with gearshift.adapt(model, example) as runtime:
        plan = whole(runtime.program.graph, rewrite=Rewrite(backend="tampered"))
        weights = [v.name for v in runtime.program.graph.weights if len(v.shape) == 2]
        tampered.weight, tampered.by = weights[0], 0.0
        runtime.swap(plan)
        eager = whole(runtime.program.graph)
        missed = []
        for weight in weights[:: max(1, len(weights) // 8)]:
            tampered.weight, tampered.by = weight, 1e-3
            runtime.swap(eager)
            try:
                runtime.swap(plan)
            except VerifyError:
                assert runtime.plan == eager
            else:
                missed.append(weight)
        assert not missed


def test_a_tighter_tolerance_is_kept(tampered: Tampered) -> None:
    torch.manual_seed(0)
    model, x = nn.Linear(32, 32).eval(), torch.randn(4, 32)
    tampered.weight, tampered.by = "p_module_weight", 1e-6
    with gearshift.adapt(model, x) as runtime:
        runtime.swap(whole(runtime.program.graph, rewrite=Rewrite(backend="tampered")))
    runtime = gearshift.adapt(model, x, tolerance=Tolerance(single=1e-7))
    with runtime, pytest.raises(VerifyError, match="1e-08 is allowed"):
        runtime.swap(whole(runtime.program.graph, rewrite=Rewrite(backend="tampered")))


def test_rows_that_mix_are_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    """The inputs drawn have different rows, or a plan that swaps rows would pass."""

    class Rolling(EagerBackend):
        name = "rolling"

        def build(self, order):  # type: ignore[no-untyped-def]
            from dataclasses import replace

            built = super().build(order)
            return replace(built, run=lambda *i: [o.roll(1, 0) for o in built.run(*i)])

    monkeypatch.setitem(BACKENDS, "rolling", Rolling())
    model = nn.Linear(4, 4).eval()
    with gearshift.adapt(model, torch.ones(3, 4)) as runtime, pytest.raises(VerifyError):
        runtime.swap(whole(runtime.program.graph, rewrite=Rewrite(backend="rolling")))


class Function(nn.Module):
    def __init__(self, function: Callable[..., torch.Tensor]) -> None:
        super().__init__()
        self.function = function

    def forward(self, *args: torch.Tensor) -> torch.Tensor:
        return self.function(*args)


@pytest.mark.parametrize("backend", ["onnxruntime", "openvino"])
@pytest.mark.parametrize(
    "function",
    [
        lambda v: v.max(-1).values,
        lambda v: v.sum(-1),
        lambda v: v * 3,
        lambda v: v.prod(-1),
        lambda v: v.cumsum(-1),
    ],
)
def test_large_whole_numbers_come_out_exact(
    function: Callable[..., torch.Tensor], backend: str
) -> None:
    model = Function(function).eval()
    with gearshift.adapt(model, torch.randint(-9, 9, (4, 8))) as runtime:
        space = runtime.space
        ops = space.runnable.get(backend, frozenset())
        runtime.swap(cover(space.graph, ops, Rewrite(backend=backend, threads=1)))
        for base in (5, 2**24 + 1, 2**31 + 7):
            x = torch.full((4, 8), base) + torch.arange(8)
            assert torch.equal(runtime(x), model(x))


@pytest.mark.parametrize("backend", ["onnxruntime", "openvino"])
def test_small_numbers_are_tried_too(backend: str) -> None:
    """By `log(1 + x)` what is small is lost; either it is not done so, or it does not serve."""
    for function in (torch.log1p, torch.expm1, torch.erf):
        model = Function(function).eval()
        with gearshift.adapt(model, torch.rand(4, 64)) as runtime:
            ops = runtime.space.runnable.get(backend, frozenset())
            plan = cover(runtime.program.graph, ops, Rewrite(backend=backend, threads=1))
            with suppress(VerifyError):
                runtime.swap(plan)
            x = torch.rand(4, 64) * 1e-4
            assert error_between(model(x), runtime(x)) < 1e-4


def test_a_mask_all_alike_in_the_example_is_verified_with_others() -> None:
    """Torch's own encoder gives zeros where a row's end is masked; others do not."""
    layer = nn.TransformerEncoderLayer(16, 2, 32, batch_first=True)
    model = nn.TransformerEncoder(layer, 1).eval()
    x, mask = torch.randn(2, 5, 16), torch.zeros(2, 5).bool()
    kwargs = {"src_key_padding_mask": mask}
    with gearshift.adapt(model, (x,), example_kwargs=kwargs) as runtime, torch.no_grad():
        with suppress(VerifyError):
            runtime.swap(whole(runtime.program.graph, rewrite=Rewrite(backend="onnxruntime")))
        mask[:, 3:] = True
        torch.testing.assert_close(
            runtime(x, src_key_padding_mask=mask), model(x, src_key_padding_mask=mask)
        )


def test_one_tensor_given_twice_is_two_inputs() -> None:
    model, x = Function(lambda a, b: a * 2 + b).eval(), torch.randn(4, 8)
    with gearshift.adapt(model, (x, x)) as runtime:
        runtime.swap(whole(runtime.program.graph, rewrite=Rewrite(backend="onnxruntime")))
        y = torch.randn(4, 8)
        torch.testing.assert_close(runtime(x, y), model(x, y))
