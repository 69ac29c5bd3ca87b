"""A thread of this process pinned to a set of cores.

Must not know what runs on it. Backends that hold the GIL run here one at a time; ONNX Runtime and
OpenVINO release it, so several of these engines work side by side.
"""

import os
import threading
from collections.abc import Callable, Sequence
from queue import SimpleQueue
from time import perf_counter
from typing import Any

import torch

from gearshift.act.engines.protocol import Stretch
from gearshift.act.openmp import limit_openmp
from gearshift.errors import EngineError
from gearshift.ir.topology import EngineSpec

ALIVE_CHECK_S = 0.5


def machine_cores() -> tuple[int, ...]:
    """The cores this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return tuple(sorted(os.sched_getaffinity(os.getpid())))
    return tuple(range(os.cpu_count() or 1))


class PinnedJob:
    __slots__ = ("_done", "_engine", "_error", "_inputs", "_thread", "_value", "_work", "stretches")

    def __init__(
        self,
        work: Callable[..., Any],
        inputs: Sequence[Any],
        thread: threading.Thread,
        engine: str,
    ) -> None:
        self._work, self._inputs, self._thread = work, inputs, thread
        self._engine = engine
        self._value: Any = None
        self._error: BaseException | None = None
        self.stretches: tuple[Stretch, ...] = ()
        self._done = threading.Lock()
        self._done.acquire()

    def run(self) -> None:
        begin_s = perf_counter()
        try:
            self._value = self._work(*self._inputs)
        except BaseException as error:
            self._error = error
        self.stretches = ((self._engine, begin_s, perf_counter(), 1.0),)
        self._done.release()

    def result(self) -> Any:
        while not self._done.acquire(timeout=ALIVE_CHECK_S):
            if not self._thread.is_alive():
                raise EngineError(f"the thread {self._thread.name} has died")
        self._done.release()
        if self._error is not None:
            raise self._error
        return self._value


class PinnedEngine:
    def __init__(self, spec: EngineSpec) -> None:
        self.spec = spec
        self.device = torch.device("cpu")
        self._queue: SimpleQueue[PinnedJob | None] = SimpleQueue()
        self._closed = False
        self._thread = self._on_cores(self._serve)
        self._thread.start()

    @property
    def thread_id(self) -> int | None:
        """The system's number of its thread."""
        return self._thread.native_id

    def start(self, work: Callable[..., Any], inputs: Sequence[Any]) -> PinnedJob:
        if self._closed:
            raise EngineError(f"engine {self.spec.name} is closed", self.spec.name)
        job = PinnedJob(work, inputs, self._thread, self.spec.name)
        self._queue.put(job)
        return job

    def call(self, work: Callable[[], Any]) -> Any:
        """On another thread of the same cores: to build takes long, and no call waits in line for
        it."""
        if self._closed:
            raise EngineError(f"engine {self.spec.name} is closed", self.spec.name)
        thread = self._on_cores(lambda: job.run())
        job = PinnedJob(work, (), thread, self.spec.name)
        thread.start()
        thread.join()
        return job.result()

    def close(self) -> None:
        if not self._closed:
            self._closed = True
            self._queue.put(None)
            self._thread.join()

    def _on_cores(self, work: Callable[[], None]) -> threading.Thread:
        """A thread that has yet to begin."""

        def run() -> None:
            os.sched_setaffinity(0, self.spec.cores)
            torch.set_grad_enabled(False)
            limit_openmp(len(self.spec.cores))
            work()

        return threading.Thread(target=run, name=f"gearshift {self.spec.name}", daemon=True)

    def _serve(self) -> None:
        while (job := self._queue.get()) is not None:
            job.run()
            del job
