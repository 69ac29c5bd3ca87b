"""ResNet-18 for images (He et al., 2015): a stem, four stages of two residual blocks, a classifier.
Knows nothing of seeds or of how it will be run.
"""

import torch
from torch import Tensor, nn
from torch.nn import functional as F

NUM_CLASSES = 1000
STAGE_WIDTHS = (64, 128, 256, 512)
BLOCKS_PER_STAGE = 2


class BasicBlock(nn.Module):
    """Two 3x3 convolutions added to their input; the input is projected where its shape changes."""

    def __init__(self, width_in: int, width_out: int, stride: int) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(width_in, width_out, 3, stride, padding=1, bias=False)
        self.norm1 = nn.BatchNorm2d(width_out)
        self.conv2 = nn.Conv2d(width_out, width_out, 3, padding=1, bias=False)
        self.norm2 = nn.BatchNorm2d(width_out)
        self.shortcut = _shortcut(width_in, width_out, stride)

    def forward(self, x: Tensor) -> Tensor:
        y = F.relu(self.norm1(self.conv1(x)))
        y = self.norm2(self.conv2(y))
        return F.relu(y + self.shortcut(x))


def _shortcut(width_in: int, width_out: int, stride: int) -> nn.Module:
    if width_in == width_out and stride == 1:
        return nn.Identity()
    conv = nn.Conv2d(width_in, width_out, 1, stride, bias=False)
    return nn.Sequential(conv, nn.BatchNorm2d(width_out))


def stage(width_in: int, width_out: int, stride: int) -> nn.Sequential:
    """Residual blocks of one width; the first one changes width and resolution."""
    first = BasicBlock(width_in, width_out, stride)
    rest = [BasicBlock(width_out, width_out, 1) for _ in range(BLOCKS_PER_STAGE - 1)]
    return nn.Sequential(first, *rest)


class ResNet18(nn.Module):
    """Images (n, 3, h, w) to class scores (n, 1000)."""

    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Sequential(
            nn.Conv2d(3, 64, 7, stride=2, padding=3, bias=False),
            nn.BatchNorm2d(64),
            nn.ReLU(),
            nn.MaxPool2d(3, stride=2, padding=1),
        )
        self.stage1 = stage(64, STAGE_WIDTHS[0], stride=1)
        self.stage2 = stage(STAGE_WIDTHS[0], STAGE_WIDTHS[1], stride=2)
        self.stage3 = stage(STAGE_WIDTHS[1], STAGE_WIDTHS[2], stride=2)
        self.stage4 = stage(STAGE_WIDTHS[2], STAGE_WIDTHS[3], stride=2)
        self.classifier = nn.Linear(STAGE_WIDTHS[3], NUM_CLASSES)

    def forward(self, image: Tensor) -> Tensor:
        x = self.stage2(self.stage1(self.stem(image)))
        x = self.stage4(self.stage3(x))
        x = F.adaptive_avg_pool2d(x, 1).flatten(1)
        return self.classifier(x)


def resnet18() -> tuple[nn.Module, tuple[Tensor, ...]]:
    """A ResNet-18 and one image of 224 x 224."""
    return ResNet18(), (torch.randn(1, 3, 224, 224),)
