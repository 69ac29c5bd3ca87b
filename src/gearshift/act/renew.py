"""Weights that change under a plan: wait until they rest, then have the plan built anew.

Must not know how a plan is built or put in force.
"""

from collections.abc import Callable, Sequence
from time import sleep

from gearshift.act.background import Background
from gearshift.capture.weights import WeightWatch
from gearshift.errors import GearshiftError

STILL_S = 0.1
SOON = 20
"""So many looks are taken one after the other; then one every `LATER_S`."""
LATER_S = 1.0


class Renewal:
    """One at a time; what somebody else swaps to meanwhile stands."""

    def __init__(
        self, background: Background, watches: Callable[[], Sequence[WeightWatch]]
    ) -> None:
        self._background, self._watches = background, watches
        self._waiting = False
        self._rebuild: Callable[[], None]
        self._overtaken: Callable[[], bool]

    def begin(self, rebuild: Callable[[], None], overtaken: Callable[[], bool]) -> None:
        """`rebuild` is called once the weights rest and the model is in eval mode; of several asked
        for meanwhile, the last."""
        self._rebuild, self._overtaken = rebuild, overtaken
        if not self._waiting:
            self._waiting = True
            self._background.submit(lambda: self._look(0))

    def _look(self, looks: int) -> None:
        try:
            done = self._overtaken() or self._tried(self._rebuild)
        except BaseException:
            self._waiting = False
            raise
        if done:
            self._waiting = False
            return

        def again() -> None:
            self._look(looks + 1)

        if looks < SOON and not any(watch.training() for watch in self._watches()):
            self._background.submit(again)
        else:
            self._background.later(LATER_S, again)

    def _tried(self, rebuild: Callable[[], None]) -> bool:
        """While weights change with every call, building would be for nothing."""
        if any(watch.reshaped() for watch in self._watches()):
            rebuild()  # which says what is wrong
        watches = [watch.renewed() for watch in self._watches()]
        sleep(STILL_S)
        if not all(watch.unchanged() for watch in watches):
            return False
        try:
            rebuild()
        except GearshiftError:
            if all(watch.unchanged() for watch in watches):
                raise
            return False
        return True
