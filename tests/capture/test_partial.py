"""Models that cannot be captured whole: the parts that can, the reason for the rest."""

import pytest
import torch
from torch import nn

import gearshift
from gearshift.capture import partial
from gearshift.errors import VerifyError
from gearshift.plan import Rewrite
from gearshift.plan.plan import whole


class Branching(nn.Module):
    """Which of its two parts runs depends on the data."""

    def __init__(self) -> None:
        super().__init__()
        self.up = nn.Sequential(nn.Linear(64, 256), nn.ReLU(), nn.Linear(256, 64))
        self.down = nn.Sequential(nn.Linear(64, 256), nn.Tanh(), nn.Linear(256, 64))
        self.note = "kept"

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = self.up(x)
        if x.sum() > 0:
            return self.down(y)
        return self.up(-y)


def test_parts_run_on_the_plan_and_both_branches_are_right() -> None:
    torch.manual_seed(0)
    model = Branching().eval()
    before = {name: value.clone() for name, value in model.state_dict().items()}
    x = torch.randn(8, 64)
    with pytest.warns(UserWarning, match=r"test_partial\.py:\d+"):
        runtime = gearshift.adapt(model, x)
    with runtime, torch.no_grad():
        names = [fragment.name for fragment in runtime.program.fragments]
        assert "up" in names
        runtime.swap(whole(runtime.program.graph, rewrite=Rewrite(backend="onnxruntime")))
        sums = set()
        for seed in range(20):
            x = torch.randn(8, 64, generator=torch.Generator().manual_seed(seed))
            sums.add(bool(x.sum() > 0))
            torch.testing.assert_close(runtime(x), model(x), rtol=1e-4, atol=1e-4)
        assert sums == {True, False}
        assert 0.2 < runtime.coverage < 1
        assert "not captured" in runtime.explain()
        assert runtime.note == "kept"
    assert all(torch.equal(before[name], value) for name, value in model.state_dict().items())
    assert not any(part._forward_hooks or part._forward_pre_hooks for part in model.modules())
    assert type(model.up) is nn.Sequential


def test_a_region_cannot_reach_over_python() -> None:
    from gearshift.errors import PlanError

    model = Branching().eval()
    with pytest.warns(UserWarning, match="not captured"):
        runtime = gearshift.adapt(model, torch.rand(8, 64))
    with runtime:
        graph = runtime.program.graph
        assert len({op.fragment for op in graph.ops}) > 1
        everything = gearshift.Region(ops=tuple(op.name for op in graph.ops))
        with pytest.raises(PlanError, match="Python"):
            runtime.swap(gearshift.Plan(regions=(everything,)))


class Asking(nn.Module):
    """Does something else for each kind of submodule, or slices them: stand-ins are neither."""

    def __init__(self, how: str) -> None:
        super().__init__()
        self.how = how
        self.parts = nn.ModuleList([Branching().up, nn.Linear(64, 64)])

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        parts = self.parts[:2] if self.how == "slice" else self.parts
        for part in parts:
            x = part(x) * (2 if isinstance(part, nn.Linear) else 1)
        return x * 0 if x.sum().item() > 1e9 else x


@pytest.mark.filterwarnings("ignore:not captured")
@pytest.mark.parametrize("how", ["kind", "slice"])
def test_code_that_asks_what_its_submodules_are_is_not_fooled(
    how: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(partial, "WORTH_SHARE", 0.0)  # however little of the time each takes
    torch.manual_seed(0)
    model, x = Asking(how).eval(), torch.randn(8, 64)
    with gearshift.adapt(model, x) as runtime, torch.no_grad():
        with pytest.raises(VerifyError, match="around captured parts"):
            runtime.swap(whole(runtime.program.graph, rewrite=Rewrite(backend="onnxruntime")))
        torch.testing.assert_close(runtime(x), model(x))


class Counting(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.inner, self.calls = Branching().up, 0

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.calls += 1
        return self.inner(x) * self.calls


def test_a_model_that_counts_goes_on_counting() -> None:
    model, x = Counting().eval(), torch.randn(4, 64)
    with pytest.warns(UserWarning, match=r"assigns to self\.calls"):
        runtime = gearshift.adapt(model, x)
    with runtime, torch.no_grad():
        before = model.calls
        for _ in range(3):
            runtime(x)
        assert model.calls == before + 3


class Choosing(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.inner = Branching().up

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = self.inner(x)
        return y[y > 0]


def test_sizes_that_depend_on_values_leave_the_parts() -> None:
    model, x = Choosing().eval(), torch.randn(4, 64)
    with pytest.warns(UserWarning, match="depends on values"):
        runtime = gearshift.adapt(model, x)
    with runtime, torch.no_grad():
        runtime.swap(whole(runtime.program.graph, rewrite=Rewrite(backend="onnxruntime")))
        torch.testing.assert_close(runtime(x), model(x))
