"""Parts of models that splits are measured on: products, residual blocks, attention, feed-forward.

Must not know how any of them is run.
"""

from collections.abc import Callable, Mapping
from functools import partial

import torch
from torch import Tensor, nn

from gearshift.zoo.minilm import FEED_FORWARD, HIDDEN, NUM_HEADS, SelfAttention
from gearshift.zoo.resnet import BasicBlock

Built = tuple[nn.Module, tuple[Tensor, ...]]
LENGTH = 128


def product(size: int, rows: int) -> Built:
    return nn.Linear(size, size, bias=False), (torch.randn(rows, size),)


def residual_block(width: int, side: int, batch: int) -> Built:
    return BasicBlock(width, width, 1), (torch.randn(batch, width, side, side),)


class Attention(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.attention = SelfAttention(HIDDEN, NUM_HEADS)

    def forward(self, x: Tensor) -> Tensor:
        return self.attention(x, None)


def attention(batch: int) -> Built:
    return Attention(), (torch.randn(batch, LENGTH, HIDDEN),)


def feed_forward(batch: int) -> Built:
    layers = (nn.Linear(HIDDEN, FEED_FORWARD), nn.GELU(), nn.Linear(FEED_FORWARD, HIDDEN))
    return nn.Sequential(*layers), (torch.randn(batch, LENGTH, HIDDEN),)


def regions(batches: tuple[int, ...]) -> Mapping[str, Callable[[], Built]]:
    """By name; the widest product has fewer rows, so that one call stays below a tenth of a
    second."""
    found: dict[str, Callable[[], Built]] = {}
    for size, rows in ((512, 512), (1024, 1024), (2048, 512), (4096, 256)):
        found[f"matmul {size}, {rows} rows"] = partial(product, size, rows)
    for batch in batches:
        for width, side in ((64, 56), (128, 28), (256, 14), (512, 7)):
            name = f"resnet block {width}x{side}x{side}, batch {batch}"
            found[name] = partial(residual_block, width, side, batch)
        found[f"attention, batch {batch}"] = partial(attention, batch)
        found[f"feed-forward, batch {batch}"] = partial(feed_forward, batch)
    return found


def drawn(make: Callable[[], Built], seed: int = 0) -> Built:
    """Always the same weights and inputs."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        model, inputs = make()
    return model.eval(), inputs
