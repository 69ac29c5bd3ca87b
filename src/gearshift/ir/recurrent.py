"""A stack of recurrent layers as data: what goes in, what comes out, how much there is to do.

Must not know how a layer is computed.
"""

from dataclasses import dataclass

LSTM, GRU, TANH, RELU = "lstm", "gru", "rnn_tanh", "rnn_relu"
GATES = {LSTM: 4, GRU: 3, TANH: 1, RELU: 1}
"""Products of the hidden size that a step computes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Stack:
    """One recurrent op of a graph: layers on top of each other, each in one direction or two."""

    kind: str
    num_layers: int
    input_size: int
    hidden_size: int
    num_directions: int = 1
    out_size: int | None = None
    """Of one direction, if it is projected to another size."""
    has_biases: bool = True
    batch_first: bool = False
    ragged: bool = False
    """Whether its rows have lengths of their own, as a packed sequence's have."""
    item_bytes: int = 4
    """Of a number."""

    @property
    def made_size(self) -> int:
        """What one direction of a layer gives for each step."""
        return self.out_size or self.hidden_size

    @property
    def gate_size(self) -> int:
        return GATES[self.kind] * self.hidden_size

    def read_size(self, layer: int) -> int:
        """What a layer reads for each step."""
        return self.input_size if layer == 0 else self.made_size * self.num_directions

    def step_flops(self, layer: int) -> float:
        """Of one row, in all directions."""
        products = self.gate_size * (self.read_size(layer) + self.made_size)
        projected = 0 if self.out_size is None else self.out_size * self.hidden_size
        return 2.0 * self.num_directions * (products + projected)

    def weight_count(self, layer: int) -> int:
        """Numbers that every step of a layer reads, without biases."""
        return int(self.step_flops(layer) / 2)
