"""How often settings may change: a layer keeps a new one for a while, and so many changes of all
layers together are all there are in a while.

Must not know who wants a change, or why.
"""

from collections import deque
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True, kw_only=True)
class Constraints:
    dwell_calls: int = 2
    """A layer keeps a new setting for so many calls at least."""
    max_switches: int = 24
    """Of all layers together,"""
    window_calls: int = 40
    """in so many calls."""


@dataclass(slots=True)
class Discipline:
    """Of one stack: what was changed when, counted in calls. At first all may change."""

    num_layers: int
    constraints: Constraints = field(default_factory=Constraints)
    calls_kept: list[int] = field(init=False)
    """For how many calls each layer has had its setting."""
    _ages: deque[int] = field(default_factory=deque)
    """Of the switches that still count, in calls; the oldest first."""

    def __post_init__(self) -> None:
        self.calls_kept = [self.constraints.dwell_calls] * self.num_layers

    @property
    def switches_left(self) -> int:
        return self.constraints.max_switches - len(self._ages)

    def switched(self, layer: int) -> None:
        self.calls_kept[layer] = 0
        self._ages.append(0)

    def called(self, times: int = 1) -> None:
        """So many calls more."""
        self.calls_kept = [calls + times for calls in self.calls_kept]
        self._ages = deque(age + times for age in self._ages)
        while self._ages and self._ages[0] >= self.constraints.window_calls:
            self._ages.popleft()
