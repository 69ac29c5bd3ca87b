"""Threads that a backend starts for itself: found when they are made, kept off one core later.

Must not know what they do, or why a core is to be left alone.
"""

import os
import threading
from collections.abc import Callable, Iterable
from contextlib import suppress
from pathlib import Path
from time import sleep
from typing import TypeVar

TASKS = Path("/proc/self/task")
LOOKS, PAUSE_S = 10, 0.005
"""A thread may be there a moment before it is on its core."""
Made = TypeVar("Made")
_one_at_a_time = threading.Lock()


def start_workers(
    make: Callable[[], Made], *, count: int, core: int, cores: Iterable[int]
) -> tuple[Made, tuple[int, ...]] | None:
    """What `make` makes, and the system's numbers of the threads it starts, so many, all on this
    core; from here on they may run on all cores given. None if others like them were started
    meanwhile, or they are not on that core: then which are its own cannot be told."""
    with _one_at_a_time:
        before = _threads()
        made = make()
        for _ in range(LOOKS):
            started = [number for number in _threads() - before if _cores_of(number) == {core}]
            if len(started) >= count:
                break
            sleep(PAUSE_S)
    if len(started) != count:
        return None
    allow(started, cores)
    return made, tuple(started)


def allow(threads: Iterable[int], cores: Iterable[int]) -> None:
    """They may run on these cores only."""
    for number in threads:
        with suppress(OSError):  # it has ended
            os.sched_setaffinity(number, cores)


def _threads() -> set[int]:
    with suppress(OSError):  # not Linux
        return {int(folder.name) for folder in TASKS.iterdir()}
    return set()


def _cores_of(thread: int) -> set[int]:
    with suppress(OSError):
        return os.sched_getaffinity(thread)
    return set()
