"""How many cores' worth of work others on this machine want, from two cheap readings.

Must not know where the readings come from.
"""

STICKY = 0.65
"""So far from the last count a new one must be to be believed."""
CONFIRM = 2
"""So many readings in a row."""


def wanted_by_others(others: float, run_delay: float) -> float:
    """What others get is less than what they want if we are in their way; we are held up by them as
    much as they by us, so our own run delay tells by how much."""
    return others / max(0.2, 1.0 - run_delay)


class Neighbours:
    """The count with some patience, so that a moment's work of a daemon is no neighbour. More than
    there are cores makes no difference to which plan is best."""

    def __init__(self, num_cores: int) -> None:
        self.num_cores = num_cores
        self.count = 0
        self._level = 0.0
        self._doubt = 0

    def update(self, others: float | None, run_delay: float | None) -> int:
        if others is None:
            return self.count
        self._level = min(self.num_cores, wanted_by_others(others, run_delay or 0.0))
        if abs(self._level - self.count) < STICKY:
            self._doubt = 0
        else:
            self._doubt += 1
            if self._doubt >= CONFIRM:
                self._doubt = 0
                self.count = round(self._level)
        return self.count
