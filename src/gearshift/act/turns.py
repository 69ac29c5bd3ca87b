"""Two plans take turns on live calls, so that the machine's moods hit both alike.

On the hot path while it lasts. Must not know why they are compared or which one wins.
"""

from itertools import count
from threading import Lock
from time import perf_counter
from typing import Any

from gearshift.act.executor import Executor
from gearshift.plan.plan import Plan

USUAL_WEIGHT = 0.2
BLOCK = 4
"""Calls in a row: idle threads of one plan may still spin while the other's first call runs."""


class TakingTurns(Executor):
    """`old` is the plan in force; `new` may cost no more than its credit beyond the usual. What it
    saves counts, too: two plans alike, each now faster and now slower, cost nothing."""

    __slots__ = ("counting", "credit_s", "new", "old", "spent_s", "turn", "usual_s")

    def __init__(self, old: Executor, new: Executor, *, usual_s: float, credit_s: float) -> None:
        super().__init__(old.plan)
        self.old, self.new = old, new
        self.turn = count()
        self.usual_s, self.credit_s = usual_s, credit_s
        self.spent_s = 0.0
        self.counting = Lock()

    def runs(self, plan: Plan) -> bool:
        return plan in (self.old.plan, self.new.plan)

    def in_flight(self) -> int:
        return super().in_flight() + self.old.in_flight() + self.new.in_flight()

    def __call__(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        newcomer = next(self.turn) // BLOCK % 2 == 0 and self.spent_s < self.credit_s
        executor = self.new if newcomer else self.old
        next(executor.entered)
        start_s = perf_counter()
        try:
            return executor(args, kwargs)
        finally:
            next(executor.left)
            beyond_s = perf_counter() - start_s - self.usual_s
            with self.counting:
                if newcomer:
                    self.spent_s = max(0.0, self.spent_s + beyond_s)
                else:
                    self.usual_s += USUAL_WEIGHT * beyond_s
