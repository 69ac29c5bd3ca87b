"""How many rows each engine of a team gets: as said, or as fast as each was in the last calls.

Must not know what a row is. On the hot path: no lock; calls at the same time may overwrite each
other's last word, which is one of many.
"""

from collections.abc import Sequence
from itertools import accumulate

from gearshift.plan.split import apportioned

WEIGHT = 0.3
"""Of the newest call in what is known of an engine."""
CROWDED = 2.0
"""So many times as long a row takes on a core that somebody else wants, too, before that is
seen."""
REST, LONGEST = 25, 800
"""An engine left out is asked again after so many calls; twice as many, if it is to be left out all
the same, and so on."""


class Shares:
    """`fixed` are in proportion; without them, they follow."""

    def __init__(
        self,
        num_engines: int,
        fixed: Sequence[int] | None = None,
        cores: Sequence[frozenset[int]] = (),
    ) -> None:
        """`cores` are those of each engine."""
        self._fixed, self._cores = fixed, cores
        self._busy: frozenset[int] = frozenset()
        speeds = [1.0] * num_engines if fixed is None else [float(share) for share in fixed]
        self._row_s = [1 / speed if speed else float("inf") for speed in speeds]
        """For each engine, what a row takes it,"""
        self._noted = [False] * num_engines
        """and whether that was ever seen;"""
        self._rests = [REST] * num_engines
        """how long it rests once it is left out,"""
        self._rested = [0] * num_engines
        """and for how many calls it has."""
        self._rehearsals = [] if fixed is not None else list(range(num_engines))

    def of(self, num_rows: int) -> list[int]:
        """The first ones are lopsided: a plan is verified with each engine doing almost all."""
        if self._rehearsals:
            return _lopsided(num_rows, self._rehearsals.pop(), len(self._row_s))
        rows = apportioned(num_rows, self._row_s)
        for member, rested in enumerate(self._rested):
            if rows[member] == 0 and rested >= self._rests[member]:
                rows[rows.index(max(rows))] -= 1
                rows[member] = 1
        return rows

    def rehearsed(self) -> None:
        """No lopsided ones any more; what was seen of them is forgotten: first calls are slow."""
        self._rehearsals.clear()
        if self._fixed is None:
            self._row_s, self._noted = [1.0] * len(self._row_s), [False] * len(self._row_s)
            self._busy = frozenset()

    def expect(self, busy: frozenset[int]) -> None:
        """Others want these cores from here on, and no other: if that is news, what was known of
        the engines is of another time, but for how long a row takes the fastest. The next calls
        tell better."""
        if self._fixed is None and self._cores and busy != self._busy:
            self._busy, least_s = busy, min(self._row_s)
            crowded = [not cores.isdisjoint(busy) for cores in self._cores]
            self._row_s = [least_s * (CROWDED if some else 1.0) for some in crowded]
            self._rests, self._rested = [REST] * len(crowded), [0] * len(crowded)

    def note(self, member: int, num_rows: float, took_s: float) -> None:
        """After a rest, only the newest call counts."""
        if self._fixed is None and took_s > 0:
            row_s, known_s = took_s / num_rows, self._row_s[member]
            was_left_out = self._rested[member] > 0
            weight = 1.0 if was_left_out or not self._noted[member] else WEIGHT
            self._row_s[member] = known_s + weight * (row_s - known_s)
            self._noted[member] = True
            self._rests[member] = min(LONGEST, 2 * self._rests[member]) if was_left_out else REST
            self._rested[member] = 0

    def left_out(self, member: int) -> None:
        if self._fixed is None:
            self._rested[member] += 1


def in_a_row(counts: Sequence[int]) -> list[range]:
    """So many to each, one after the other."""
    ends = list(accumulate(counts))
    return [range(end - count, end) for end, count in zip(ends, counts, strict=True)]


def _lopsided(num_rows: int, most: int, num_engines: int) -> list[int]:
    """A row for each, and all the others for one engine."""
    rows = [min(1, max(0, num_rows - num_engines + 1))] * num_engines
    rows[most] += num_rows - sum(rows)
    return rows
