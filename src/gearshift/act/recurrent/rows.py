"""The rows of a batch and where each ends: who is still there, where chunks end.

Must not know what is computed.
"""

from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

import torch
from torch import Tensor

from gearshift.plan.unroll import Steps

A_CHUNK = 16
"""What another chunk costs, as steps of one row."""


@dataclass(frozen=True, slots=True)
class Rows:
    """`lengths` are sorted, the longest first; None if all rows are as long as the sequence."""

    num_steps: int
    """Of the longest."""
    num_rows: int
    lengths: tuple[int, ...] | None = None
    ends: tuple[int, ...] = ()
    """Where rows end, each place once, in order."""

    @classmethod
    def ragged(cls, lengths: Sequence[int]) -> "Rows":
        """The longest first."""
        return cls(lengths[0], len(lengths), tuple(lengths), tuple(sorted(set(lengths))))

    def some(self, span: slice) -> "Rows":
        """Of rows next to each other."""
        if self.lengths is None:
            return Rows(self.num_steps, span.stop - span.start)
        return Rows.ragged(self.lengths[span])

    def alive(self, at: int) -> int:
        """How many have a step there."""
        if self.lengths is None:
            return self.num_rows
        return bisect_left(self.lengths, -at, key=lambda length: -length)

    def chunk_end(self, at: int, steps: Steps) -> int:
        """Where the chunk that begins here ends: so many steps on at most; where a row ends before
        that, if to go on beyond it would cost more than another chunk."""
        wanted = steps.first if at == 0 and steps.first else steps.then
        end = min(self.num_steps, at + wanted) if wanted else self.num_steps
        if self.lengths is None or end == at + 1:
            return end
        return self._worth(at, end)

    def _worth(self, at: int, end: int) -> int:
        """The last of the places where rows end, or `end`, up to which less is computed in vain
        than a chunk costs: of a row that ends on the way what comes after it and, for the state it
        ended with, once more what came before."""
        assert self.lengths is not None
        place, ended, reached = bisect_right(self.ends, at), 0, at
        for row_end in (*self.ends[place : bisect_left(self.ends, end)], end):
            if ended * (row_end - at) > A_CHUNK:
                break
            reached = row_end
            ended = self.alive(at) - self.alive(row_end)
        return reached

    def reversal(self, num_steps: int) -> Tensor | None:
        """For each step and row, where its counterpart is if every row begins at its own end; None
        if that is the same for all rows."""
        if self.lengths is None:
            return None
        steps = torch.arange(num_steps).unsqueeze(1)
        mirrored = torch.tensor(self.lengths) - 1 - steps
        return torch.where(mirrored >= 0, mirrored, steps)


def reversed_rows(x: Tensor, reversal: Tensor | None) -> Tensor:
    if reversal is None:
        return x.flip(0)
    return x.gather(0, reversal.unsqueeze(2).expand_as(x))


def sorted_rows(lengths: Sequence[int]) -> list[int] | None:
    """Places in order of length, the longest first; None if they are so already."""
    if all(a >= b for a, b in pairwise(lengths)):
        return None
    return sorted(range(len(lengths)), key=lambda i: -lengths[i])
