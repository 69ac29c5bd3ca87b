"""How many neighbours there are: threads of others that want a core.

Must not know where the readings come from.
"""

import math
import statistics
from collections import deque
from collections.abc import Mapping

NOBODY = 0.25
"""Others that use less than this much of a core are no neighbours."""
CONFIRM, CONFIRM_DISTURBED = 2, 5
"""So many readings in a row must say so: a moment's work of a daemon is no neighbour; more of them
while other work of ours blurs the picture."""
LATELY, ENOUGH = 5, 3
"""Readings that tell how many there are: with fewer than enough, whoever is there is one. Each is a
moment's count, and the one that starts a program is there for a moment, too."""
CLEARLY = 0.75
"""So far from the number there is the count must be for another number, as long as somebody is
there."""
FEW = 4
"""Up to so many are counted one by one; of more, only about how many matters: 8, 16, 32."""
LEAST_RUN = 0.1
LESS_USED = 0.25
"""By so much of its time others must use another core less for that one to be the spare one."""


def wanted_by_us(busy_cores: float, run_delay: float) -> float:
    """How many of our threads ran or were ready, on average."""
    return busy_cores / max(LEAST_RUN, 1.0 - run_delay)


class Neighbours:
    """What others use tells at once that somebody is there; how many, only the count of what is
    ready to run, less our own: what each gets depends on how the system shares the cores out.
    More neighbours than cores make no difference to which plan is best."""

    def __init__(self, num_cores: int) -> None:
        self.num_cores = num_cores
        self.count = 0
        self._waiting: deque[float] = deque(maxlen=LATELY)
        self._doubt = 0

    @property
    def doubtful(self) -> bool:
        """Whether the last reading disagreed, or is one of too few."""
        return self._doubt > 0 or 0 < len(self._waiting) < ENOUGH

    def wake(self) -> None:
        """After a pause the next reading counts at once: what was before may be long over."""
        self._doubt = CONFIRM_DISTURBED
        self._waiting.clear()

    def update(self, *, used: float | None, ready: float | None, disturbed: bool = False) -> int:
        """`used`: cores that others use; `ready`: threads of others that run or could."""
        if used is None:
            return self.count
        level = self._level(used, ready)
        self._doubt = self._doubt + 1 if level != self.count else 0
        if self._doubt >= (CONFIRM_DISTURBED if disturbed else CONFIRM):
            self.count, self._doubt = level, 0
        return self.count

    def _level(self, used: float, ready: float | None) -> int:
        if used < NOBODY:
            self._waiting.clear()
            return 0
        if ready is None:
            return self._about(used)
        self._waiting.append(ready)
        if len(self._waiting) < ENOUGH:
            return max(1, self.count)
        waiting = statistics.fmean(sorted(self._waiting)[1:-1])
        if self.count and abs(waiting - self.count) < max(CLEARLY, self.count / 2 - 1):
            return self.count
        return self._about(waiting)

    def _about(self, count: float) -> int:
        number = max(1, round(count))
        return min(self.num_cores, number if number <= FEW else 2 ** round(math.log2(number)))


class SpareCore:
    """The core that others use least. Which core a thread ran on is known only roughly: another
    core takes its place if two readings in a row say so."""

    def __init__(self) -> None:
        self.core: int | None = None
        self._doubt = 0

    def update(self, neighbours: int, used: Mapping[int, float]) -> None:
        """`used`: by core, the share of its time that others use."""
        if not 0 < neighbours < len(used):
            self.core, self._doubt = None, 0
            return
        least = min(used, key=lambda core: used[core])
        now = used.get(self.core, 1.0) if self.core is not None else 1.0
        self._doubt = self._doubt + 1 if now > used[least] + LESS_USED else 0
        if self.core is None or self._doubt >= CONFIRM:
            self.core, self._doubt = least, 0
