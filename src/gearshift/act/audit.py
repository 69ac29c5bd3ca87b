"""Checks a sampled share of live calls against the model, after the reply, when there is time.

Must not know what happens to a plan that is caught.
"""

import logging
from collections.abc import Callable
from time import perf_counter
from typing import Any

import torch
from torch import nn

from gearshift.act.background import Background
from gearshift.act.verify import Tolerance, compare
from gearshift.capture.calls import own_copy
from gearshift.capture.program import Fragment
from gearshift.capture.weights import eval_twin
from gearshift.errors import VerifyError
from gearshift.plan.plan import Plan

log = logging.getLogger("gearshift")
EARLY_INTERVAL_S = 0.5
INTERVAL_S = 2.0
SHARE_OF_TIME = 0.002


class Audit:
    """`due_s` is when the next call is to be checked: all the hot path looks at."""

    def __init__(
        self,
        background: Background,
        tolerance: Tolerance,
        caught: Callable[[Plan, VerifyError], None],
    ) -> None:
        self._background, self._tolerance, self._caught = background, tolerance, caught
        self.due_s, self._on = float("inf"), False
        self._taken_s = self._rests_until_s = float("-inf")
        self.checked = 0
        self.worst_error = 0.0
        self._looked_at: dict[tuple[Plan, str], Fragment] = {}

    def watch(self, on: bool) -> None:
        """A plan came into force: look at it soon if it is new, but not more often than that,
        however often plans change."""
        soon_s = max(perf_counter(), self._taken_s + EARLY_INTERVAL_S)
        self.due_s, self._on = soon_s if on else float("inf"), on

    def take(
        self,
        plan: Plan,
        fragment: Fragment,
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
        result: Any,
    ) -> None:
        """Keeps copies, since the caller owns inputs and outputs from here on."""
        now_s = perf_counter()
        if not self._is_new(plan, fragment) and now_s < self._rests_until_s:
            self.due_s = self._rests_until_s
            return
        self.due_s, self._taken_s = float("inf"), now_s
        copies = own_copy((args, kwargs, result))
        self._background.submit(lambda: self._check(plan, fragment, *copies))

    def _check(self, plan: Plan, fragment: Fragment, args: Any, kwargs: Any, result: Any) -> None:
        start_s = perf_counter()
        try:
            if fragment.watch.unchanged():
                self._compare(fragment, args, kwargs, result)
                self._looked_at[plan, fragment.name] = fragment
        except VerifyError as difference:
            self._caught(plan, difference)
            return
        except Exception as error:  # the model refuses the call now: no verdict
            log.info("a live call could not be checked: %s", str(error))
        now_s = perf_counter()
        next_s = now_s + EARLY_INTERVAL_S
        if not self._is_new(plan, fragment):
            rest_s = max(INTERVAL_S, (now_s - start_s) / SHARE_OF_TIME)
            next_s = self._rests_until_s = now_s + rest_s
        if self._on:  # another plan may have come into force meanwhile, and be due sooner
            self.due_s = min(self.due_s, next_s)

    def _is_new(self, plan: Plan, fragment: Fragment) -> bool:
        """Other weights make another fragment."""
        return self._looked_at.get((plan, fragment.name)) is not fragment

    def _compare(self, fragment: Fragment, args: Any, kwargs: Any, result: Any) -> None:
        """By a twin that stays in eval mode, whatever the model's owner does meanwhile."""
        eager = fragment.eager
        with torch.no_grad():
            twin = eval_twin(eager) if isinstance(eager, nn.Module) else eager
            expected = twin(*args, **kwargs)
        try:
            error = compare(expected, result, self._tolerance, "a live call")
        except VerifyError:
            if fragment.watch.unchanged():
                raise
            return  # the weights changed meanwhile
        self.worst_error = max(self.worst_error, error)
        self.checked += 1
