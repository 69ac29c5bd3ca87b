"""Models that cannot be captured whole: the parts that can, the reason for the rest."""

import pytest
import torch
from torch import nn

import gearshift
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
