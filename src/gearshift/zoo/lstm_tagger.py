"""A sequence tagger: embedding, two bidirectional LSTM layers, one score per tag and token.
Knows nothing of seeds or of how it will be run.
"""

import torch
from torch import Tensor, nn

VOCABULARY = 5000
EMBEDDING = 128
HIDDEN = 256
NUM_LAYERS = 2
NUM_TAGS = 32


class LSTMTagger(nn.Module):
    """Token ids (n, length) to tag scores (n, length, 32)."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Embedding(VOCABULARY, EMBEDDING)
        self.lstm = nn.LSTM(EMBEDDING, HIDDEN, NUM_LAYERS, batch_first=True, bidirectional=True)
        self.tags = nn.Linear(2 * HIDDEN, NUM_TAGS)
        # The default weights leave scores of a few hundredths, too near to rounding to compare.
        for weight in (*self.lstm.parameters(), self.tags.weight):
            if weight.dim() == 2:
                nn.init.kaiming_normal_(weight, nonlinearity="tanh")

    def forward(self, ids: Tensor) -> Tensor:
        states, _ = self.lstm(self.embedding(ids))
        return self.tags(states)


def lstm_tagger() -> tuple[nn.Module, tuple[Tensor, ...]]:
    """An LSTM tagger and four sentences of 64 tokens."""
    return LSTMTagger(), (torch.randint(VOCABULARY, (4, 64)),)
