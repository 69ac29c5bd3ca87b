"""Threads that a backend starts for itself: found when they are made, kept off one core later.

Must not know what they do, or why a core is to be left alone.
"""

import os
from collections.abc import Callable, Iterable
from contextlib import suppress
from pathlib import Path
from typing import TypeVar

from gearshift.act.engines.pinned import machine_cores

TASKS = Path("/proc/self/task")
Made = TypeVar("Made")


def start_workers(make: Callable[[], Made], *, count: int, core: int) -> tuple[Made, list[int]]:
    """What `make` makes, and the system's numbers of the threads it starts, so many, all on this
    core; from here on they may run on any. None if others like them were started meanwhile: which
    are whose cannot be told."""
    before = _threads()
    made = make()
    started = [number for number in _threads() - before if _cores_of(number) == {core}]
    if len(started) != count:
        started = []
    keep_off(started, None)
    return made, started


def keep_off(threads: Iterable[int], core: int | None) -> None:
    """They may run on every core of ours but this one; None: on all."""
    cores = set(machine_cores())
    allowed = cores - {core} or cores
    for number in threads:
        with suppress(OSError):  # it has ended
            os.sched_setaffinity(number, allowed)


def _threads() -> set[int]:
    with suppress(OSError):  # not Linux
        return {int(folder.name) for folder in TASKS.iterdir()}
    return set()


def _cores_of(thread: int) -> set[int]:
    with suppress(OSError):
        return os.sched_getaffinity(thread)
    return set()
