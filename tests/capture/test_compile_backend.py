"""torch.compile(model, backend="gearshift")."""

import pytest
import torch
from torch import nn

from gearshift import dynamo
from gearshift.errors import GearshiftError


class Broken(nn.Module):
    """torch hands it over in two graphs."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(6, 8), nn.Linear(8, 3)
        self.norm = nn.BatchNorm1d(8)

    def forward(self, x: torch.Tensor) -> dict[str, torch.Tensor | int]:
        h = self.norm(self.first(x).relu())
        torch._dynamo.graph_break()
        return {"y": self.second(h), "rows": x.shape[0]}


@pytest.fixture
def model() -> nn.Module:
    torch._dynamo.reset()
    torch.manual_seed(0)
    return Broken().eval()


@pytest.mark.capability("core.compile-backend")
def test_graphs_run_on_the_chosen_backend_at_changing_sizes(model: nn.Module) -> None:
    before = set(dynamo.runtimes)
    compiled = torch.compile(model, backend="gearshift", options={"rewrite": "onnxruntime"})
    with torch.no_grad():
        for rows in (4, 4, 7, 9, 1):
            x = torch.randn(rows, 6)
            got, expected = compiled(x), model(x)
            torch.testing.assert_close(got["y"], expected["y"], rtol=1e-4, atol=1e-5)
            assert got["rows"] == rows
    made = set(dynamo.runtimes) - before
    assert len(made) >= 2
    for runtime in made:
        assert {r.rewrite.backend for r in runtime.plan.regions} == {"onnxruntime"}
    assert any(runtime.coverage == 1.0 for runtime in made)
    assert len({id(runtime.open_engine("caller")) for runtime in made}) == 1


@pytest.mark.capability("core.compile-backend")
def test_new_weights_answer(model: nn.Module) -> None:
    compiled = torch.compile(model, backend="gearshift", options={"rewrite": "onnxruntime"})
    x = torch.randn(4, 6)
    with torch.no_grad():
        compiled(x)
        model.first.weight.mul_(2)
        torch.testing.assert_close(compiled(x)["y"], model(x)["y"], rtol=1e-4, atol=1e-5)
        model.second.weight = nn.Parameter(torch.randn(3, 8))
        torch.testing.assert_close(compiled(x)["y"], model(x)["y"], rtol=1e-4, atol=1e-5)


@pytest.mark.capability("core.compile-backend")
def test_backward_is_refused_aloud(model: nn.Module) -> None:
    compiled = torch.compile(model, backend="gearshift")
    result = compiled(torch.randn(4, 6))["y"]
    with pytest.raises(GearshiftError, match="inference only"):
        result.sum().backward()


def test_inputs_that_want_gradients_get_them(model: nn.Module) -> None:
    compiled = torch.compile(model, backend="gearshift")
    x = torch.randn(4, 6, requires_grad=True)
    compiled(x)["y"].sum().backward()
    got, x.grad = x.grad, None
    model(x)["y"].sum().backward()
    torch.testing.assert_close(got, x.grad)


def test_an_unknown_option_is_refused(model: nn.Module) -> None:
    compiled = torch.compile(model, backend="gearshift", options={"speed": 9})
    with pytest.raises(Exception, match="unknown option 'speed'; there is 'rewrite'"):
        compiled(torch.randn(4, 6))
