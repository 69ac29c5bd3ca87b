"""The whole story in ten seconds: capture, plan, swap, same answers, a wrong plan refused."""

import pytest
import torch
from torch import nn

import gearshift
from gearshift.errors import PlanError
from gearshift.plan import diff, dumps, loads
from gearshift.plan.cut import Divide
from gearshift.plan.plan import whole
from gearshift.plan.rewrite import SetRewrite


def test_the_story() -> None:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 4)).eval()
    x = torch.randn(3, 8)
    expected = model(x)

    with gearshift.adapt(model, x) as runtime:
        graph = runtime.program.graph
        assert [op.kind for op in graph.ops] == ["linear", "elementwise", "linear"]
        assert torch.equal(runtime(x), expected)

        plan = whole(graph, rewrite=gearshift.Rewrite(backend="onnxruntime", threads=1))
        plan = Divide(region=graph.ops[0].name, at=graph.ops[2].name).apply(plan, graph)
        eager = gearshift.Rewrite(backend="eager")
        plan = SetRewrite(region=graph.ops[2].name, rewrite=eager).apply(plan, graph)
        print(diff(runtime.plan, plan))
        assert loads(dumps(plan), graph) == plan

        runtime.swap(plan)
        assert runtime.plan == plan
        torch.testing.assert_close(runtime(x), expected.detach(), rtol=1e-4, atol=1e-5)
        for rows in (1, 2, 7, 7, 7, 7):
            other = torch.randn(rows, 8)
            torch.testing.assert_close(runtime(other), model(other).detach(), rtol=1e-4, atol=1e-5)
            assert runtime.settle(30)

        with pytest.raises(PlanError, match="no engine 'cpu:99'"):
            runtime.swap(whole(graph, engine="cpu:99"))
        assert runtime.plan == plan
        assert "refused" in runtime.explain()
