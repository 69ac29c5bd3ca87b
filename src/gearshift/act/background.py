"""One thread for work no call may wait for: building, checking, letting go.

Must not know what the work is.
"""

import ctypes
import logging
import threading
from collections.abc import Callable, Sequence
from contextlib import suppress
from queue import SimpleQueue
from time import monotonic, sleep

from gearshift.errors import GearshiftError

log = logging.getLogger("gearshift")
DRAIN_S, DRAIN_PAUSE_S = 30.0, 0.002


class Background:
    """Started with the first piece of work; work is done in order."""

    def __init__(self) -> None:
        self._queue: SimpleQueue[Callable[[], None] | None] = SimpleQueue()
        self._pending = 0
        self._changed = threading.Condition()
        self._thread: threading.Thread | None = None
        self._closed = False

    def submit(self, work: Callable[[], None]) -> None:
        with self._changed:
            if self._closed:
                return
            self._pending += 1
            if self._thread is None:
                self._thread = threading.Thread(
                    target=self._serve, name="gearshift background", daemon=True
                )
                self._thread.start()
        self._queue.put(work)

    def settle(self, timeout_s: float | None = None) -> bool:
        """Waits until nothing is left to do; False if it takes longer, or if asked from within."""
        if threading.current_thread() is self._thread:
            return False
        with self._changed:
            return self._changed.wait_for(lambda: self._pending == 0, timeout_s)

    def close(self) -> None:
        with self._changed:
            self._closed = True
            thread = self._thread
        if thread is not None:
            self._queue.put(None)
            if thread is not threading.current_thread():
                thread.join()

    def let_go(self, in_flight: Callable[[], int], releases: Sequence[Callable[[], None]]) -> None:
        """Frees once no call is under way, so that it is done here rather than in a call."""
        deadline_s = monotonic() + DRAIN_S

        def attempt() -> None:
            if in_flight() > 0 and monotonic() < deadline_s:
                sleep(DRAIN_PAUSE_S)
                self.submit(attempt)  # behind other work: a slow call must not hold that up
            else:
                free(releases)

        self.submit(attempt)

    def _serve(self) -> None:
        while (work := self._queue.get()) is not None:
            if not self._closed:
                self._do(work)
            del work
            with self._changed:
                self._pending -= 1
                self._changed.notify_all()

    def _do(self, work: Callable[[], None]) -> None:
        try:
            work()
        except GearshiftError as error:
            log.warning("%s", str(error))
        except Exception:  # the thread must live on; a bug is shown, not swallowed
            log.exception("background work failed")


def free(releases: Sequence[Callable[[], None]]) -> None:
    """ONNX Runtime's memory goes back to the system only when the allocator is told to trim."""
    for release in releases:
        release()
    with suppress(AttributeError):
        ctypes.CDLL(None).malloc_trim(0)
