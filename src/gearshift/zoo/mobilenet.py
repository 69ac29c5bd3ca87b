"""MobileNetV2, width 1.0 (Sandler et al., 2018): inverted residuals, depthwise convolutions.
Knows nothing of seeds or of how it will be run.
"""

import torch
from torch import Tensor, nn
from torch.nn import functional as F

NUM_CLASSES = 1000
STEM_WIDTH = 32
HEAD_WIDTH = 1280

# Table 2 of the paper: expansion, width, blocks, stride of the first block.
STAGES = (
    (1, 16, 1, 1),
    (6, 24, 2, 2),
    (6, 32, 3, 2),
    (6, 64, 4, 2),
    (6, 96, 3, 1),
    (6, 160, 3, 2),
    (6, 320, 1, 1),
)


def conv_relu6(width_in: int, width_out: int, kernel: int, stride: int, groups: int) -> nn.Module:
    """Convolution, BatchNorm and ReLU6 that keep the resolution at stride 1."""
    return nn.Sequential(
        nn.Conv2d(width_in, width_out, kernel, stride, kernel // 2, groups=groups, bias=False),
        nn.BatchNorm2d(width_out),
        nn.ReLU6(),
    )


class InvertedResidual(nn.Module):
    """Expand, filter each channel by itself, project; added to the input where shapes allow."""

    def __init__(self, width_in: int, width_out: int, stride: int, expansion: int) -> None:
        super().__init__()
        inner = width_in * expansion
        self.expand = nn.Identity() if expansion == 1 else conv_relu6(width_in, inner, 1, 1, 1)
        self.depthwise = conv_relu6(inner, inner, 3, stride, groups=inner)
        self.project = nn.Conv2d(inner, width_out, 1, bias=False)
        self.norm = nn.BatchNorm2d(width_out)
        self.has_shortcut = stride == 1 and width_in == width_out

    def forward(self, x: Tensor) -> Tensor:
        y = self.norm(self.project(self.depthwise(self.expand(x))))
        return x + y if self.has_shortcut else y


def _blocks() -> list[nn.Module]:
    blocks: list[nn.Module] = []
    width_in = STEM_WIDTH
    for expansion, width, num_blocks, first_stride in STAGES:
        for index in range(num_blocks):
            stride = first_stride if index == 0 else 1
            blocks.append(InvertedResidual(width_in, width, stride, expansion))
            width_in = width
    return blocks


class MobileNetV2(nn.Module):
    """Images (n, 3, h, w) to class scores (n, 1000)."""

    def __init__(self) -> None:
        super().__init__()
        self.stem = conv_relu6(3, STEM_WIDTH, 3, stride=2, groups=1)
        self.blocks = nn.Sequential(*_blocks())
        self.head = conv_relu6(STAGES[-1][1], HEAD_WIDTH, 1, stride=1, groups=1)
        self.classifier = nn.Linear(HEAD_WIDTH, NUM_CLASSES)

    def forward(self, image: Tensor) -> Tensor:
        x = self.head(self.blocks(self.stem(image)))
        x = F.adaptive_avg_pool2d(x, 1).flatten(1)
        return self.classifier(x)


def mobilenet_v2() -> tuple[nn.Module, tuple[Tensor, ...]]:
    """A MobileNetV2 and one image of 224 x 224."""
    return MobileNetV2(), (torch.randn(1, 3, 224, 224),)
