"""Who must wait before the next attempt, longer each time.

Must not know what is attempted.
"""

from collections.abc import Hashable

MAX_TIMES = 5
REFUSED_S = 10.0
"""For a plan that could not be made ready."""


class Rests:
    def __init__(self) -> None:
        self._until: dict[Hashable, tuple[float, int]] = {}

    def add(self, key: Hashable, now_s: float, rest_s: float) -> None:
        """So long the first time, twice that the next."""
        times = self._until.get(key, (0.0, 0))[1]
        self._until[key] = (now_s + rest_s * 2**times, min(times + 1, MAX_TIMES))

    def __call__(self, key: Hashable, now_s: float) -> bool:
        return now_s < self._until.get(key, (0.0, 0))[0]
