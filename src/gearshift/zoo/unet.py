"""U-Net (Ronneberger et al., 2015) with BatchNorm: four levels down, four up, joined by skips.
Knows nothing of seeds or of how it will be run.
"""

import torch
from torch import Tensor, nn
from torch.nn import functional as F

WIDTHS = (32, 64, 128, 256)
BOTTOM_WIDTH = 512
NUM_CLASSES = 2


def double_conv(width_in: int, width_out: int) -> nn.Sequential:
    """Two 3x3 convolutions that keep the resolution."""
    return nn.Sequential(
        nn.Conv2d(width_in, width_out, 3, padding=1, bias=False),
        nn.BatchNorm2d(width_out),
        nn.ReLU(),
        nn.Conv2d(width_out, width_out, 3, padding=1, bias=False),
        nn.BatchNorm2d(width_out),
        nn.ReLU(),
    )


class Up(nn.Module):
    """Doubles the resolution and merges the encoder's features of that resolution."""

    def __init__(self, width_in: int, width_out: int) -> None:
        super().__init__()
        self.upsample = nn.ConvTranspose2d(width_in, width_out, 2, stride=2)
        self.merge = double_conv(2 * width_out, width_out)

    def forward(self, x: Tensor, skip: Tensor) -> Tensor:
        return self.merge(torch.cat((skip, self.upsample(x)), dim=1))


class UNet(nn.Module):
    """Images (n, 3, h, w), h and w multiples of 16, to class scores (n, 2, h, w)."""

    def __init__(self) -> None:
        super().__init__()
        pairs = list(zip((3, *WIDTHS[:-1]), WIDTHS, strict=True))
        self.down = nn.ModuleList(double_conv(*pair) for pair in pairs)
        self.bottom = double_conv(WIDTHS[-1], BOTTOM_WIDTH)
        wider = (*WIDTHS[1:], BOTTOM_WIDTH)
        self.up = nn.ModuleList(Up(*pair) for pair in zip(wider, WIDTHS, strict=True))
        self.classifier = nn.Conv2d(WIDTHS[0], NUM_CLASSES, 1)

    def forward(self, image: Tensor) -> Tensor:
        x, skips = image, []
        for down in self.down:
            skips.append(down(x))
            x = F.max_pool2d(skips[-1], 2)
        x = self.bottom(x)
        for up, skip in zip(reversed(self.up), reversed(skips), strict=True):
            x = up(x, skip)
        return self.classifier(x)


def unet() -> tuple[nn.Module, tuple[Tensor, ...]]:
    """A U-Net and one image of 128 x 128."""
    return UNet(), (torch.randn(1, 3, 128, 128),)
