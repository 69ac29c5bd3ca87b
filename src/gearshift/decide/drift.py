"""How much longer a plan must take than another did before, for it to be the plan and not the time:
machines have better and worse minutes.

Must not know plans. Only taking turns compares two plans at the same time.
"""

from math import inf

from gearshift.ir.snapshot import Situation, Snapshot
from gearshift.predict.minute import DRIFT

FRESH_S = 2.0
"""So long after the situation changed, what is seen is most likely due to that."""


class Drift:
    def __init__(self) -> None:
        self._situation: Situation | None = None
        self._since_s = inf

    def see(self, snapshot: Snapshot) -> None:
        if snapshot.situation != self._situation:
            self._situation, self._since_s = snapshot.situation, snapshot.at_s

    def beyond(self, at_s: float, least: float) -> float:
        """The ratio of two times that tells something; never below `least`."""
        return least if at_s - self._since_s < FRESH_S else max(least, DRIFT)
