"""What the settings of a stack need in memory, modelled: the outputs of every layer, and a room for
the gates of each chunk that is being computed.

Must not know what of it is in use. It is never less than what a call needs.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from gearshift.decide.unroll.view import RAGGED, Settings, UnrollView
from gearshift.ir.recurrent import Stack
from gearshift.plan.unroll import Steps

ITEM_BYTES = 4


def layer_groups(stack: Stack, num_engines: int) -> tuple[range, ...]:
    """For each engine, its layers: some in a row or, if there are two directions, all of them in
    one."""
    count = stack.num_layers
    if stack.num_directions > 1:
        return (range(count),) * num_engines
    bounds = [member * count // num_engines for member in range(num_engines + 1)]
    return tuple(range(bounds[member], bounds[member + 1]) for member in range(num_engines))


@dataclass(frozen=True, slots=True, kw_only=True)
class Footprint:
    """Of calls of so many rows, and up to so many steps."""

    stack: Stack
    num_rows: int
    num_steps: int
    ragged: bool
    num_engines: int

    @property
    def made_bytes(self) -> int:
        """By all layers."""
        each = self.stack.made_size * self.stack.num_directions * ITEM_BYTES
        return self.stack.num_layers * self.num_steps * self.num_rows * each

    def most_steps(self, steps: Steps) -> int:
        """Of one chunk: in a ragged batch it may go on to where a row ends."""
        if steps.then == 0:
            return self.num_steps
        wanted = max(steps.first, steps.then)
        return min(self.num_steps, 2 * wanted - 1 if self.ragged else wanted)

    def chunk_bytes(self, steps: Steps) -> int:
        return self.most_steps(steps) * self.num_rows * self.stack.gate_size * ITEM_BYTES

    def held_bytes(self, settings: Settings) -> int:
        """Each engine computes one chunk at a time."""
        chunks = [self.chunk_bytes(steps) for steps in settings]
        groups = layer_groups(self.stack, self.num_engines)
        return self.made_bytes + sum(max(chunks[i] for i in group) for group in groups if group)

    def room_bytes(self, limit_bytes: int, chunks: Sequence[int], layer: int) -> int:
        """What a chunk of this layer may need, if the others stay as they are and keep the
        limit."""
        groups = layer_groups(self.stack, self.num_engines)
        rest = [group for group in groups if group and layer not in group]
        others = sum(max(chunks[i] for i in group) for group in rest)
        at_once = sum(layer in group for group in groups)
        return (limit_bytes - self.made_bytes - others) // at_once


def footprint(view: UnrollView) -> Footprint:
    return Footprint(
        stack=view.stack,
        num_rows=view.num_rows,
        num_steps=view.num_steps,
        ragged=view.inputs == RAGGED,
        num_engines=view.num_engines,
    )
