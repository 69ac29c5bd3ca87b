"""What every engine offers: run something there and wait, or start it and ask later.

Must not know what is run.
"""

from collections.abc import Callable, Sequence
from time import perf_counter
from typing import Any, Protocol

import torch

from gearshift.ir.topology import EngineSpec

Stretch = tuple[str, float, float, float]
"""An engine, when it was at work, from and to by perf_counter, and its share of what there was to
do."""


class Job(Protocol):
    @property
    def stretches(self) -> tuple[Stretch, ...]:
        """Who worked on it and when; known once there is a result."""

    def result(self) -> Any:
        """Waits; gives what the work returned, or raises what it raised."""


class Engine(Protocol):
    spec: EngineSpec
    device: torch.device

    def start(self, work: Callable[..., Any], inputs: Sequence[Any]) -> Job: ...

    def call(self, work: Callable[[], Any]) -> Any:
        """For building: whatever threads the work makes belong to this engine. If it can,
        what is started meanwhile does not wait for it."""

    def close(self) -> None:
        """Finishes what was started, then refuses more. Safe to call twice."""


class Done:
    """A job that was finished when it was started."""

    __slots__ = ("_error", "_value", "stretches")

    def __init__(self, work: Callable[..., Any], inputs: Sequence[Any], engine: str) -> None:
        self._error: BaseException | None = None
        self._value: Any = None
        begin_s = perf_counter()
        try:
            self._value = work(*inputs)
        except Exception as error:
            self._error = error
        self.stretches = ((engine, begin_s, perf_counter(), 1.0),)

    def result(self) -> Any:
        if self._error is not None:
            raise self._error
        return self._value
