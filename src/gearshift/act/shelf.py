"""Plans that stand by: built, verified, and out of force, so that going back to one takes no time.

Must not know why a plan may be wanted again.
"""

from collections import OrderedDict
from collections.abc import Callable

from gearshift.act.prepared import Prepared
from gearshift.plan.plan import Plan

MAX_PLANS, FEW, FEW_BYTES = 8, 3, 1 << 30
"""More than a few stand by only as long as all of them together are small."""


class Shelf:
    """The least recently wanted goes first. Whoever holds the runtime's lock may use it."""

    def __init__(self, let_go: Callable[[Prepared], None]) -> None:
        self._let_go = let_go
        self._plans: OrderedDict[Plan, Prepared] = OrderedDict()

    def plans(self) -> list[Plan]:
        return list(self._plans)

    def put(self, prepared: Prepared, *, wanted: bool = True) -> None:
        """One not wanted stays as long as there is room."""
        if prepared.variants:
            before = self._plans.pop(prepared.executor.plan, None)
            if before is not None and before is not prepared:
                self._let_go(before)
            self._plans[prepared.executor.plan] = prepared
            if not wanted:
                self._plans.move_to_end(prepared.executor.plan, last=False)
            while self._too_many():
                self._let_go(self._plans.popitem(last=False)[1])

    def _too_many(self) -> bool:
        held_bytes = sum(prepared.held_bytes for prepared in self._plans.values())
        return len(self._plans) > (FEW if held_bytes > FEW_BYTES else MAX_PLANS)

    def look(self, plan: Plan) -> Prepared | None:
        """It stays there, and is the one wanted last."""
        if plan in self._plans:
            self._plans.move_to_end(plan)
        return self._plans.get(plan)

    def take(self, plan: Plan) -> Prepared | None:
        return self._plans.pop(plan, None)

    def free(self) -> None:
        """At once, on this thread, what no call runs on; the rest as `clear` does."""
        for plan in self.plans():
            if self._plans[plan].executor.in_flight() == 0:
                self._plans.pop(plan).release()
        self.clear()

    def clear(self) -> None:
        while self._plans:
            self._let_go(self._plans.popitem()[1])
