"""Two independent branches, an image tower and a text tower, that meet in one score per pair.
Knows nothing of seeds or of how it will be run.
"""

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from gearshift.zoo.minilm import Embedding, EncoderLayer
from gearshift.zoo.resnet import stage

VOCABULARY = 8192
LENGTH = 32
TEXT_HIDDEN = 384
SHARED = 128
SCALE = 10.0


class ImageTower(nn.Module):
    """Images (n, 3, h, w) to unit vectors (n, 128)."""

    def __init__(self) -> None:
        super().__init__()
        self.stages = nn.Sequential(stage(3, 32, 2), stage(32, 64, 2), stage(64, 128, 2))
        self.output = nn.Linear(128, SHARED)

    def forward(self, image: Tensor) -> Tensor:
        x = F.adaptive_avg_pool2d(self.stages(image), 1).flatten(1)
        return F.normalize(self.output(x), dim=-1)


class TextTower(nn.Module):
    """Token ids (n, length) to unit vectors (n, 128)."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding = Embedding(VOCABULARY, LENGTH, TEXT_HIDDEN)
        self.layers = nn.Sequential(
            EncoderLayer(TEXT_HIDDEN, 6, 4 * TEXT_HIDDEN),
            EncoderLayer(TEXT_HIDDEN, 6, 4 * TEXT_HIDDEN),
        )
        self.output = nn.Linear(TEXT_HIDDEN, SHARED)

    def forward(self, ids: Tensor) -> Tensor:
        x = self.layers(self.embedding(ids)).mean(1)
        return F.normalize(self.output(x), dim=-1)


class TwoTower(nn.Module):
    """Images and texts, n of each, to n scores and the two embeddings they come from."""

    def __init__(self) -> None:
        super().__init__()
        self.image = ImageTower()
        self.text = TextTower()

    def forward(self, image: Tensor, ids: Tensor) -> tuple[Tensor, tuple[Tensor, Tensor]]:
        image_embedding = self.image(image)
        text_embedding = self.text(ids)
        scores = SCALE * (image_embedding * text_embedding).sum(-1)
        return scores, (image_embedding, text_embedding)


def two_tower() -> tuple[nn.Module, tuple[Tensor, ...]]:
    """A two-tower model, four images of 64 x 64 and four texts of 32 tokens."""
    return TwoTower(), (torch.randn(4, 3, 64, 64), torch.randint(VOCABULARY, (4, LENGTH)))
