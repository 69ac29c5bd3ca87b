"""Torch's own kernels leave others their cores, in a region as in the model itself."""

import pytest
import torch
from torch import nn

import gearshift
from gearshift.act.serving import Crowd
from gearshift.plan.cut import formed
from gearshift.plan.plan import Region


def test_each_region_by_torch_asks_who_else_wants_cores(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[int] = []

    def others(crowd: Crowd) -> int:
        asked.append(torch.get_num_threads())
        return 1

    monkeypatch.setattr(Crowd, "others", others)
    model, x = nn.Sequential(nn.Linear(8, 8), nn.Tanh(), nn.Linear(8, 8)).eval(), torch.randn(4, 8)
    with gearshift.adapt(model, x) as runtime, torch.no_grad():
        plan = formed(runtime.program.graph, granularity=1, like=Region(ops=()))
        runtime.swap(plan)
        asked.clear()
        torch.testing.assert_close(runtime(x), model(x))
        assert len(asked) == len(plan.regions) > 1
        assert len(set(asked)) == 1, "after each the number of threads is as it was"
