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

from gearshift.act.verify import Tolerance, compare, error_between
from gearshift.busy import Neighbour, busy
from gearshift.errors import VerifyError
from gearshift.runtime import Runtime
from gearshift.view.story import towards_end

OURS_S, THEIRS_S = 0.5, 0.05
"""Slices, in turns; each is one call at least, after one that does not count: the other's threads
may still spin, and its data fill the caches."""
MAX_CALLS = 100_000
VISIT = (0.4, 0.7)
"""The part of a run that a neighbour is there, if one is asked for."""


class Called(NamedTuple):
    at_s: float
    call_s: float
    plan: str
    """What it ran on, in a few words."""


@dataclass(slots=True)
class Series:
    """Of a long run every second call is kept, then every fourth, and so on."""

    calls: list[Called] = field(default_factory=list)
    every: int = 1
    _count: int = 0

    def add(self, call: Called) -> None:
        if self._count % self.every == 0:
            self.calls.append(call)
            if len(self.calls) >= MAX_CALLS:
                self.calls, self.every = self.calls[::2], 2 * self.every
        self._count += 1

    @property
    def num_calls(self) -> int:
        """About, if not all are kept."""
        return len(self.calls) * self.every

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
        return Series(towards_end(self.calls), self.every)


@dataclass(slots=True)
class Run:
    ours: Series = field(default_factory=Series)
    theirs: Series = field(default_factory=Series)
    """The model as it was."""
    max_error: float = 0.0
    interrupted: bool = False
    stay_s: list[float] = field(default_factory=list)
    """When a neighbour that was asked for came, and when it went."""
    slice_s: list[float] = field(default_factory=list)
    """Our calls since `seen` was last told."""

    wrong: str = ""
    """What was the first to differ by more than is allowed."""

    def compare(self, expected: Any, got: Any, tolerance: Tolerance) -> None:
        self.max_error = max(self.max_error, _difference(expected, got))
        try:
            compare(expected, got, tolerance, "a call")
        except VerifyError as error:
            self.wrong = self.wrong or str(error)

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
                theirs, _ = _slice(eager, lambda: "eager", args, kwargs, THEIRS_S, run.theirs)
                ours, run.slice_s = _slice(
                    runtime, lambda: runtime.running, args, kwargs, OURS_S, run.ours
                )
                run.compare(theirs, ours, runtime.tolerance)
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
            if len(self._stay_s) % 2:  # else an interrupt came before it did
                self._stay_s.append(perf_counter())


def _slice(
    call: Callable[..., Any],
    plan: Callable[[], str],
    args: Any,
    kwargs: Any,
    seconds: float,
    into: Series,
) -> tuple[Any, list[float]]:
    """The last call's result, and what each took that counts."""
    call(*args, **kwargs)
    took_s: list[float] = []
    end_s = perf_counter() + seconds
    while True:
        on = plan()
        start_s = perf_counter()
        result = call(*args, **kwargs)
        now_s = perf_counter()
        took_s.append(now_s - start_s)
        into.add(Called(start_s, now_s - start_s, on))
        if now_s >= end_s:
            return result, took_s


def _difference(expected: Any, got: Any) -> float:
    pairs = zip(pytree.tree_leaves(expected), pytree.tree_leaves(got), strict=True)
    return max((error_between(want, have) for want, have in pairs), default=0.0)
