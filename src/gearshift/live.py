"""A model called over and over through the runtime, and now and then as it was: how both do.

A recipe: calls and measures; decides nothing.
"""

import os
import statistics
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass, field
from time import perf_counter
from typing import Any, NamedTuple

import torch
from torch.utils import _pytree as pytree

from gearshift.act.verify import error_between
from gearshift.bench.neighbours import Neighbour, busy
from gearshift.runtime import Runtime
from gearshift.view.story import END

OURS_S, THEIRS_S = 0.5, 0.05
"""Slices, in turns; each is one call at least."""
VISIT = (0.4, 0.7)
"""The part of a run that a neighbour is there, if one is asked for."""


class Called(NamedTuple):
    at_s: float
    call_s: float
    plan: str
    """What it ran on, in a few words."""


@dataclass(slots=True)
class Series:
    calls: list[Called] = field(default_factory=list)

    @property
    def call_s(self) -> list[float]:
        return [call.call_s for call in self.calls]

    @property
    def mean_s(self) -> float:
        return statistics.fmean(self.call_s)

    @property
    def median_s(self) -> float:
        return statistics.median(self.call_s)

    @property
    def p95_s(self) -> float:
        return sorted(self.call_s)[int(0.95 * (len(self.calls) - 1))]

    def end(self) -> "Series":
        return Series(self.calls[int(len(self.calls) * (1 - END)) :])


@dataclass(slots=True)
class Run:
    ours: Series = field(default_factory=Series)
    theirs: Series = field(default_factory=Series)
    """The model as it was."""
    max_error: float = 0.0
    interrupted: bool = False
    stay_s: list[float] = field(default_factory=list)
    """When a neighbour that was asked for came, and when it went."""

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
    neighbour: bool = False,
) -> Run:
    """`seen` is told after each slice, with the share of the time that is over. An interrupt ends
    the run early, if there is something to tell; `neighbour` has one come and go."""
    run = Run()
    eager = runtime.program.eager
    start_s = perf_counter()
    over = 0.0
    with torch.no_grad(), Visitor(run.stay_s) as visitor:
        try:
            while over < 1.0:
                theirs = _slice(eager, lambda: "eager", args, kwargs, THEIRS_S, run.theirs)
                ours = _slice(runtime, lambda: runtime.running, args, kwargs, OURS_S, run.ours)
                run.max_error = max(run.max_error, _difference(theirs, ours))
                over = (perf_counter() - start_s) / seconds
                visitor.come_or_go(neighbour and VISIT[0] <= over < VISIT[1])
                seen(run, min(1.0, over))
        except KeyboardInterrupt:
            if not run.ours.calls:
                raise
            run.interrupted = True
    return run


class Visitor:
    """A busy process on the last core, now there and now not; `stay_s` is told when it comes and
    goes."""

    def __init__(self, stay_s: list[float]) -> None:
        self._stay: ExitStack | None = None
        self._stay_s = stay_s

    def __enter__(self) -> "Visitor":
        return self

    def __exit__(self, *exc: object) -> None:
        self.come_or_go(False)

    def come_or_go(self, wanted: bool) -> None:
        if wanted and self._stay is None:
            core = max(os.sched_getaffinity(0))
            self._stay = ExitStack()
            self._stay.enter_context(busy([Neighbour(kind="arithmetic", core=core)]))
            self._stay_s.append(perf_counter())
        elif not wanted and self._stay is not None:
            self._stay.close()
            self._stay = None
            self._stay_s.append(perf_counter())


def _slice(
    call: Callable[..., Any],
    plan: Callable[[], str],
    args: Any,
    kwargs: Any,
    seconds: float,
    into: Series,
) -> Any:
    end_s = perf_counter() + seconds
    while True:
        start_s = perf_counter()
        result = call(*args, **kwargs)
        now_s = perf_counter()
        into.calls.append(Called(start_s, now_s - start_s, plan()))
        if now_s >= end_s:
            return result


def _difference(expected: Any, got: Any) -> float:
    pairs = zip(pytree.tree_leaves(expected), pytree.tree_leaves(got), strict=True)
    return max((error_between(want, have) for want, have in pairs), default=0.0)
