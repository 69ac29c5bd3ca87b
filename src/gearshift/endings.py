"""What becomes of runtimes when their process forks or ends.

Must not know what a runtime is beyond that.
"""

import atexit
import os
from typing import Protocol
from weakref import WeakSet

EXIT_S = 5.0
"""At the end of the process, builds under way are waited for no longer than this."""


class Mortal(Protocol):
    def after_fork(self) -> None:
        """In a child process threads, locks and sessions of the parent are of no use."""

    def before_exit(self, timeout_s: float) -> None:
        """Nothing of it may be within a library's code when the interpreter has ended: that takes
        the process down."""


_LIVING: WeakSet[Mortal] = WeakSet()
watch_over = _LIVING.add


def _after_fork() -> None:
    for one in list(_LIVING):
        one.after_fork()


def _at_exit() -> None:
    for one in list(_LIVING):
        one.before_exit(EXIT_S)


os.register_at_fork(after_in_child=_after_fork)
atexit.register(_at_exit)
