"""One thread for work no call may wait for: building, checking, letting go.

Must not know what the work is.
"""

import ctypes
import logging
import threading
from collections.abc import Callable, Sequence
from contextlib import suppress
from operator import itemgetter
from queue import Empty, SimpleQueue
from time import monotonic, sleep

from gearshift.act.openmp import limit_openmp
from gearshift.errors import GearshiftError

log = logging.getLogger("gearshift")
DRAIN_S, DRAIN_PAUSE_S = 30.0, 0.002


Work = Callable[[], None]


class Background:
    """Started with the first piece of work; does it in order, and what is postponed when due."""

    def __init__(self) -> None:
        self._queue: SimpleQueue[Work | None] = SimpleQueue()
        self._postponed: list[tuple[float, Work]] = []
        self._pending = 0
        self._changed = threading.Condition()
        self._thread: threading.Thread | None = None
        self._closed = False
        self._worked = False

    @property
    def busy(self) -> bool:
        """Whether there is anything to do now."""
        return self._pending > 0

    def was_busy(self) -> bool:
        """Whether there was anything to do since this was last asked."""
        worked, self._worked = self._worked or self._pending > 0, False
        return worked

    def submit(self, work: Work) -> None:
        with self._changed:
            if self._closed:
                return
            self._pending += 1
            self._worked = True
            if self._thread is None:
                self._thread = threading.Thread(
                    target=self._serve, name="gearshift background", daemon=True
                )
                self._thread.start()
        self._queue.put(work)

    def later(self, delay_s: float, work: Work) -> None:
        """Asked for by work under way. `settle` does not wait for it."""
        assert threading.current_thread() is self._thread
        self._postponed.append((monotonic() + delay_s, work))

    def settle(self, timeout_s: float | None = None) -> bool:
        """Waits until nothing is left to do; False if it takes longer, or if asked from within."""
        if threading.current_thread() is self._thread:
            return False
        with self._changed:
            return self._changed.wait_for(lambda: self._pending == 0, timeout_s)

    def close(self, timeout_s: float | None = None) -> None:
        """What is under way is finished, for so long at most; what waits is dropped."""
        self.stop()
        thread = self._thread
        if thread is not None and thread is not threading.current_thread():
            thread.join(timeout_s)

    def stop(self) -> None:
        """Like `close`, without waiting."""
        with self._changed:
            self._closed = True
        self._queue.put(None)

    def let_go(self, in_flight: Callable[[], int], releases: Sequence[Work]) -> None:
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
        limit_openmp(1)  # beside calls on all cores, threads that wait for each other take longer
        while True:
            try:
                work = self._queue.get(timeout=self._next_s())
            except Empty:
                _, work = self._postponed.pop(0)
                with self._changed:
                    self._pending += 1
                    self._worked = True
            if work is None:
                break
            if not self._closed:
                self._do(work)
            del work
            with self._changed:
                self._pending -= 1
                self._changed.notify_all()

    def _next_s(self) -> float | None:
        """How long until something postponed is due."""
        if not self._postponed:
            return None
        self._postponed.sort(key=itemgetter(0))
        return max(0.0, self._postponed[0][0] - monotonic())

    def _do(self, work: Work) -> None:
        try:
            work()
        except GearshiftError as error:
            log.warning("%s", str(error))
        except Exception:  # the thread must live on; a bug is shown, not swallowed
            log.exception("background work failed")


def free(releases: Sequence[Work]) -> None:
    """ONNX Runtime's memory goes back to the system only when the allocator is told to trim."""
    for release in releases:
        release()
    with suppress(AttributeError):
        ctypes.CDLL(None).malloc_trim(0)
