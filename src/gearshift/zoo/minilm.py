"""A sentence encoder of the size of MiniLM-L6 (Wang et al., 2020), with BERT's post-norm layers.
Knows nothing of seeds, tokenisers or of how it will be run.
"""

import torch
from torch import Tensor, nn
from torch.nn import functional as F

VOCABULARY = 30522
MAX_LENGTH = 512
HIDDEN = 384
NUM_LAYERS = 6
NUM_HEADS = 12
FEED_FORWARD = 1536
NORM_EPS = 1e-12


class SelfAttention(nn.Module):
    """Multi-head attention of a sequence (n, length, hidden) to itself."""

    def __init__(self, hidden: int, num_heads: int) -> None:
        super().__init__()
        self.heads = (num_heads, hidden // num_heads)
        self.query = nn.Linear(hidden, hidden)
        self.key = nn.Linear(hidden, hidden)
        self.value = nn.Linear(hidden, hidden)
        self.output = nn.Linear(hidden, hidden)

    def forward(self, x: Tensor, mask: Tensor | None) -> Tensor:
        query, key, value = (
            project(x).unflatten(-1, self.heads).transpose(1, 2)
            for project in (self.query, self.key, self.value)
        )
        y = F.scaled_dot_product_attention(query, key, value, attn_mask=mask)
        return self.output(y.transpose(1, 2).flatten(2))


class EncoderLayer(nn.Module):
    """Attention, then feed-forward, each added to its input and normalised."""

    def __init__(self, hidden: int, num_heads: int, feed_forward: int) -> None:
        super().__init__()
        self.attention = SelfAttention(hidden, num_heads)
        self.attention_norm = nn.LayerNorm(hidden, eps=NORM_EPS)
        self.widen = nn.Linear(hidden, feed_forward)
        self.narrow = nn.Linear(feed_forward, hidden)
        self.output_norm = nn.LayerNorm(hidden, eps=NORM_EPS)

    def forward(self, x: Tensor, mask: Tensor | None = None) -> Tensor:
        """`mask` is true where attention may look and broadcasts to (n, heads, length, length)."""
        x = self.attention_norm(x + self.attention(x, mask))
        return self.output_norm(x + self.narrow(F.gelu(self.widen(x))))


class Embedding(nn.Module):
    """Token ids (n, length) to the normalised sum of word and position vectors."""

    def __init__(self, vocabulary: int, max_length: int, hidden: int) -> None:
        super().__init__()
        self.words = nn.Embedding(vocabulary, hidden)
        self.positions = nn.Embedding(max_length, hidden)
        self.norm = nn.LayerNorm(hidden, eps=NORM_EPS)

    def forward(self, ids: Tensor) -> Tensor:
        return self.norm(self.words(ids) + self.positions.weight[: ids.shape[1]])


def masked_mean(x: Tensor, mask: Tensor) -> Tensor:
    """The mean over the positions of (n, length, hidden) where `mask` (n, length) is 1."""
    weight = mask.unsqueeze(-1).to(x.dtype)
    return (x * weight).sum(1) / weight.sum(1).clamp(min=1.0)


class MiniLM(nn.Module):
    """Token ids and mask (n, length) to token vectors and one mean vector per sentence."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding = Embedding(VOCABULARY, MAX_LENGTH, HIDDEN)
        self.layers = nn.ModuleList(
            EncoderLayer(HIDDEN, NUM_HEADS, FEED_FORWARD) for _ in range(NUM_LAYERS)
        )

    def forward(self, input_ids: Tensor, attention_mask: Tensor) -> dict[str, Tensor]:
        mask = attention_mask.bool()[:, None, None]
        x = self.embedding(input_ids)
        for layer in self.layers:
            x = layer(x, mask)
        return {"last_hidden_state": x, "pooled": masked_mean(x, attention_mask)}


def minilm() -> tuple[nn.Module, tuple[Tensor, ...]]:
    """A MiniLM and one sentence of 100 tokens padded to 128."""
    input_ids = torch.randint(VOCABULARY, (1, 128))
    attention_mask = (torch.arange(128) < 100).long().unsqueeze(0)
    return MiniLM(), (input_ids, attention_mask)
