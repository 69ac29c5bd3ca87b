"""A plan that differs never serves: what counts as a difference."""

import pytest
import torch
from torch import nn

import gearshift
from gearshift.act.backends import BACKENDS
from gearshift.act.backends.eager import EagerBackend
from gearshift.act.verify import Tolerance, compare, error_between
from gearshift.errors import VerifyError
from gearshift.plan import Rewrite
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
