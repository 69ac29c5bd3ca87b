"""A model called over and over through the runtime, and now and then as it was: how both do.

A recipe: calls and measures; decides nothing.
"""

import statistics
from collections.abc import Callable
from dataclasses import dataclass, field
from time import perf_counter
from typing import Any

import torch
from torch.utils import _pytree as pytree

from gearshift.act.verify import error_between
from gearshift.runtime import Runtime

OURS_S, THEIRS_S = 0.5, 0.05
"""Slices, in turns; each is one call at least."""
END = 1 / 3
"""The last part of a run, when what is to be found is found, mostly."""


@dataclass(slots=True)
class Series:
    call_s: list[float] = field(default_factory=list)

    @property
    def mean_s(self) -> float:
        return statistics.fmean(self.call_s)

    @property
    def median_s(self) -> float:
        return statistics.median(self.call_s)

    @property
    def p95_s(self) -> float:
        return sorted(self.call_s)[int(0.95 * (len(self.call_s) - 1))]

    def end(self) -> "Series":
        return Series(self.call_s[int(len(self.call_s) * (1 - END)) :])


@dataclass(slots=True)
class Run:
    ours: Series = field(default_factory=Series)
    theirs: Series = field(default_factory=Series)
    """The model as it was."""
    max_error: float = 0.0

    @property
    def vs_eager(self) -> float:
        return self.theirs.median_s / self.ours.median_s

    @property
    def vs_eager_at_end(self) -> float:
        return self.theirs.end().median_s / self.ours.end().median_s


def run_live(
    runtime: Runtime,
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
    *,
    seconds: float,
    seen: Callable[[Run, float], None],
) -> Run:
    """`seen` is told after each slice, with the share of the time that is over."""
    run = Run()
    start_s = perf_counter()
    over = 0.0
    with torch.no_grad():
        while over < 1.0:
            ours = _slice(runtime, args, kwargs, OURS_S, run.ours)
            theirs = _slice(runtime.program.eager, args, kwargs, THEIRS_S, run.theirs)
            run.max_error = max(run.max_error, _difference(theirs, ours))
            over = (perf_counter() - start_s) / seconds
            seen(run, min(1.0, over))
    return run


def _slice(call: Callable[..., Any], args: Any, kwargs: Any, seconds: float, into: Series) -> Any:
    end_s = perf_counter() + seconds
    while True:
        start_s = perf_counter()
        result = call(*args, **kwargs)
        now_s = perf_counter()
        into.call_s.append(now_s - start_s)
        if now_s >= end_s:
            return result


def _difference(expected: Any, got: Any) -> float:
    pairs = zip(pytree.tree_leaves(expected), pytree.tree_leaves(got), strict=True)
    return max((error_between(want, have) for want, have in pairs), default=0.0)
