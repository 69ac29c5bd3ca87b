"""What the settings of a recurrent stack need in memory, modelled: the outputs of every layer, and
room for the gates of each chunk that is being computed; and which layers an engine of a team has.

Must not know what of it is in use. What kernels themselves need for a moment is not in it.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

from gearshift.ir.recurrent import Stack
from gearshift.plan.unroll import Steps


def layer_groups(stack: Stack, num_engines: int) -> tuple[range, ...]:
    """For each engine, its layers: some in a row, about as much work for all, none for those beyond
    the number of layers; or, if there are two directions, all of them in one."""
    if stack.num_directions > 1:
        return (range(stack.num_layers),) * num_engines
    work = [stack.step_flops(layer) for layer in range(stack.num_layers)]
    count = min(num_engines, stack.num_layers)
    ends: list[int] = []
    done = 0.0
    for layer, flops in enumerate(work):
        done += flops
        left = stack.num_layers - layer - 1
        missing = count - len(ends) - 1
        full = done >= sum(work) * (len(ends) + 1) / count - flops / 2
        if missing and (full or left == missing):
            ends.append(layer + 1)
    bounds = [0, *ends, *(stack.num_layers,) * (num_engines - count + 1)]
    return tuple(range(first, last) for first, last in pairwise(bounds))


@dataclass(frozen=True, slots=True, kw_only=True)
class Footprint:
    """Of calls of so many rows, and up to so many steps."""

    stack: Stack
    num_rows: int
    num_steps: int
    num_engines: int

    @property
    def made_bytes(self) -> int:
        """By all layers."""
        each = self.stack.made_size * self.stack.num_directions * self.stack.item_bytes
        return self.stack.num_layers * self.num_steps * self.num_rows * each

    @property
    def turned_bytes(self) -> int:
        """Of the direction that begins at the end: what a layer reads and makes, turned round."""
        if self.stack.num_directions == 1:
            return 0
        made, given = self.stack.made_size, self.stack.input_size
        read = max(given, made * 2 if self.stack.num_layers > 1 else 0)
        return self.num_steps * self.num_rows * (read + made) * self.stack.item_bytes

    def most_steps(self, steps: Steps) -> int:
        """Of one chunk."""
        wanted = max(steps.first, steps.then) if steps.then else self.num_steps
        return min(self.num_steps, wanted)

    def chunk_bytes(self, steps: Steps) -> int:
        each = self.stack.gate_size * self.stack.item_bytes
        return self.most_steps(steps) * self.num_rows * each

    def held_bytes(self, settings: Sequence[Steps]) -> int:
        """Each engine computes one chunk at a time."""
        chunks = [self.chunk_bytes(steps) for steps in settings]
        groups = layer_groups(self.stack, self.num_engines)
        at_once = sum(max(chunks[i] for i in group) for group in groups if group)
        return self.made_bytes + self.turned_bytes + at_once

    def room_bytes(self, limit_bytes: int, chunks: Sequence[int], layer: int) -> int:
        """What a chunk of this layer may need, if the others stay as they are and keep the
        limit."""
        groups = layer_groups(self.stack, self.num_engines)
        rest = [group for group in groups if group and layer not in group]
        others = sum(max(chunks[i] for i in group) for group in rest)
        at_once = sum(layer in group for group in groups)
        return (limit_bytes - self.made_bytes - self.turned_bytes - others) // at_once
