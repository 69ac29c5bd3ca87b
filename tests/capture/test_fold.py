"""What an export computes from constants alone is not computed again at every call."""

import torch
from torch import nn

from gearshift.capture.load import capture


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

    program = capture(Half().eval(), (torch.randn(2, 4),), {})
    assert program.fragments
