"""Checks a sampled share of live calls against the model, after the reply, when there is time.

Must not know what happens to a plan that is caught.
"""

from collections.abc import Callable
from time import perf_counter
from typing import Any

import torch
from torch import Tensor
from torch.utils import _pytree as pytree

from gearshift.act.background import Background
from gearshift.act.verify import Tolerance, compare
from gearshift.errors import VerifyError
from gearshift.plan.plan import Plan

EARLY_CHECKS = 2
EARLY_INTERVAL_S = 0.5
INTERVAL_S = 2.0
SHARE_OF_TIME = 0.005


class Audit:
    """`due_s` is when the next call is to be checked: all the hot path looks at."""

    def __init__(
        self,
        eager: Callable[..., Any],
        background: Background,
        tolerance: Tolerance,
        caught: Callable[[Plan, VerifyError], None],
    ) -> None:
        self._eager, self._background = eager, background
        self._tolerance, self._caught = tolerance, caught
        self.due_s = float("inf")
        self.checked = 0
        self.worst_error = 0.0
        self._early = 0

    def watch(self, on: bool) -> None:
        """A plan came into force: look often at first."""
        self._early = EARLY_CHECKS
        self.due_s = perf_counter() if on else float("inf")

    def take(self, plan: Plan, args: tuple[Any, ...], kwargs: dict[str, Any], result: Any) -> None:
        """Keeps copies, since the caller owns inputs and outputs from here on."""
        self.due_s = float("inf")
        copies = pytree.tree_map(_copy, (args, kwargs, result))
        self._background.submit(lambda: self._check(plan, *copies))

    def _check(self, plan: Plan, args: Any, kwargs: Any, result: Any) -> None:
        start_s = perf_counter()
        with torch.no_grad():
            expected = self._eager(*args, **kwargs)
        try:
            error = compare(expected, result, self._tolerance, "a live call")
        except VerifyError as difference:
            self._caught(plan, difference)
            return
        self.worst_error = max(self.worst_error, error)
        self.checked += 1
        self._early -= 1
        cost_s = perf_counter() - start_s
        pause_s = EARLY_INTERVAL_S if self._early > 0 else max(INTERVAL_S, cost_s / SHARE_OF_TIME)
        self.due_s = perf_counter() + pause_s


def _copy(value: Any) -> Any:
    return value.detach().clone() if isinstance(value, Tensor) else value
