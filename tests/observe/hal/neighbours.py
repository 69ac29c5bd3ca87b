"""Those who want a core: a process that is not ours, and a thread that is.

Must not know who watches it.
"""

import os
import signal
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress

BURN = """
import os, time
os.sched_setaffinity(0, {{{core}}})
if os.fork(): os._exit(0)
os.setsid()
print(os.getpid(), flush=True)
end = time.monotonic() + 20
while time.monotonic() < end: pass
"""


@contextmanager
def neighbour(core: int) -> Iterator[None]:
    """Its parent ends at once, so that it belongs to nobody's process tree but init's."""
    read_fd, write_fd = os.pipe()
    actions = [(os.POSIX_SPAWN_DUP2, write_fd, 1)]
    command = [sys.executable, "-S", "-c", BURN.format(core=core)]
    parent = os.posix_spawn(sys.executable, command, os.environ, file_actions=actions)
    os.close(write_fd)
    with os.fdopen(read_fd) as told:
        pid = int(told.readline())
    os.waitpid(parent, 0)
    try:
        yield
    finally:
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
        time.sleep(0.05)


class Worker:
    """A thread pinned to a core, busy until told otherwise."""

    def __init__(self, core: int) -> None:
        self.idle, self.end = threading.Event(), threading.Event()
        self._core = core
        self.thread = threading.Thread(target=self._work)
        self.thread.start()

    def stop(self) -> None:
        self.idle.set()
        self.end.set()
        self.thread.join()

    def _work(self) -> None:
        os.sched_setaffinity(0, {self._core})
        while not self.idle.is_set():
            sum(range(1000))
        self.end.wait()


@contextmanager
def busy_thread(core: int) -> Iterator[Worker]:
    worker = Worker(core)
    try:
        yield worker
    finally:
        worker.stop()
