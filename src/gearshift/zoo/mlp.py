"""A plain multi-layer perceptron: large matrix products and nothing in between.
Knows nothing of seeds or of how it will be run.
"""

from itertools import pairwise

import torch
from torch import Tensor, nn

WIDTHS = (1024, 2048, 2048, 2048, 2048, 256)


def _linear(width_in: int, width_out: int) -> nn.Linear:
    linear = nn.Linear(width_in, width_out)
    # The default weights shrink the signal at every ReLU; five layers down little would be left.
    nn.init.kaiming_normal_(linear.weight, nonlinearity="relu")
    return linear


class MLP(nn.Module):
    """Vectors (n, 1024) to vectors (n, 256) through four hidden layers."""

    def __init__(self) -> None:
        super().__init__()
        self.hidden = nn.Sequential()
        for width_in, width_out in pairwise(WIDTHS[:-1]):
            self.hidden.extend((_linear(width_in, width_out), nn.ReLU()))
        self.output = _linear(*WIDTHS[-2:])

    def forward(self, x: Tensor) -> Tensor:
        return self.output(self.hidden(x))


def mlp() -> tuple[nn.Module, tuple[Tensor, ...]]:
    """An MLP and 32 vectors."""
    return MLP(), (torch.randn(32, WIDTHS[0]),)
