"""Two plans take turns on live calls, so that the machine's moods hit both alike.

On the hot path while it lasts. Must not know why they are compared or which one wins.
"""

from collections.abc import Hashable
from itertools import count
from threading import Lock
from time import perf_counter
from typing import Any

from gearshift.act.executor import Executor, outer_key
from gearshift.plan.plan import Plan

USUAL_WEIGHT = 0.2
BLOCK = 4
"""Calls in a row: idle threads of one plan may still spin while the other's first call runs."""


class TakingTurns(Executor):
    """`old` is the plan in force; `new` may cost no more than its credit beyond the usual, which is
    what calls of the same sizes take on the old one. What it saves counts, too: two plans alike,
    each now faster and now slower, cost nothing."""

    __slots__ = ("counting", "credit_s", "new", "old", "seen", "spent_s", "turn", "usual_s")

    def __init__(self, old: Executor, new: Executor, *, credit_s: float) -> None:
        super().__init__(old.plan)
        self.old, self.new = old, new
        self.turn = count()
        self.credit_s, self.spent_s = credit_s, 0.0
        self.usual_s: dict[Hashable, float] = {}
        """By sizes; those never seen on the old plan are not tried on the new one."""
        self.seen: dict[Hashable, int] = {}
        self.counting = Lock()

    def runs(self, plan: Plan) -> bool:
        return plan in (self.old.plan, self.new.plan)

    def __call__(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        sizes = _sizes(args, kwargs)
        turn = next(self.turn) // BLOCK % 2
        newcomer = turn == 1 and self.spent_s < self.credit_s and sizes in self.usual_s
        executor = self.new if newcomer else self.old
        next(executor.entered)
        start_s = perf_counter()
        try:
            return executor(args, kwargs)
        finally:
            next(executor.left)
            call_s = perf_counter() - start_s
            with self.counting:
                self._count(sizes, call_s, newcomer=newcomer)

    def _count(self, sizes: Hashable, call_s: float, *, newcomer: bool) -> None:
        usual_s = self.usual_s.get(sizes, call_s)
        if newcomer:
            self.spent_s = max(0.0, self.spent_s + call_s - usual_s)
        else:
            seen = self.seen[sizes] = self.seen.get(sizes, 0) + 1
            weight = max(USUAL_WEIGHT, 1 / seen)
            self.usual_s[sizes] = usual_s + weight * (call_s - usual_s)


def _sizes(args: tuple[Any, ...], kwargs: dict[str, Any]) -> Hashable:
    key = outer_key(args, kwargs)
    try:
        hash(key)
    except TypeError:  # a constant that cannot be hashed
        return None
    return key
