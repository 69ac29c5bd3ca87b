"""What an export computes from constants alone is not computed again at every call."""

import torch
from torch import nn

import gearshift
from gearshift.capture.load import capture
from gearshift.plan import Rewrite
from gearshift.plan.cut import cover

ORT = Rewrite(backend="onnxruntime", threads=1)


def node_kinds(model: nn.Module, *inputs: torch.Tensor) -> list[str]:
    (fragment,) = capture(model.eval(), inputs, {}).fragments
    assert fragment.onnx is not None
    return [n.op_type for nodes in fragment.onnx.nodes.values() for n in nodes]  # type: ignore[attr-defined]


def test_a_convolution_without_bias_is_one_node() -> None:
    model = nn.Sequential(nn.Conv2d(3, 8, 3, bias=False), nn.BatchNorm2d(8), nn.ReLU6())
    assert node_kinds(model, torch.randn(2, 3, 16, 16)) == ["Conv", "BatchNormalization", "Clip"]


def test_a_constant_that_is_a_result_stays_one() -> None:
    class Half(nn.Module):
        def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
            return x + 1, torch.full((3,), 0.5)

    x = torch.randn(2, 4)
    with gearshift.adapt(Half().eval(), x) as runtime:
        plan = cover(runtime.program.graph, runtime.space.runnable["onnxruntime"], ORT)
        runtime.swap(plan)
        torch.testing.assert_close(runtime(x), (x + 1, torch.full((3,), 0.5)))
