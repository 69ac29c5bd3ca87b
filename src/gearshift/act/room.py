"""Bytes held by what is built, and whether more may be: the memory limit, also while building.

Must not know what is built or when it goes.
"""

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from weakref import WeakSet

import psutil

from gearshift.act.backends.protocol import Executable
from gearshift.act.variants import Variants
from gearshift.errors import MemoryLimitError

SPARE = 0.5
CGROUPS = (
    ("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory.current"),
    ("/sys/fs/cgroup/memory/memory.limit_in_bytes", "/sys/fs/cgroup/memory/memory.usage_in_bytes"),
)


def usual_limit(weight_bytes: int) -> int:
    """Where the user sets none: the weights, and half of what is free in this machine, or in this
    container."""
    free = [psutil.virtual_memory().available]
    for limit, used in CGROUPS:
        with suppress(OSError, ValueError):  # not here, or "max"
            free.append(int(Path(limit).read_text()) - int(Path(used).read_text()))
    return weight_bytes + int(SPARE * max(0, min(free)))


class Room:
    def __init__(self, *, limit: int, weight_bytes: int, make_room: Callable[[], None]) -> None:
        """`make_room` lets go of what can be spared."""
        self._limit, self._weight_bytes, self._make_room = limit, weight_bytes, make_room
        self._built: WeakSet[Variants] = WeakSet()
        self._counting = threading.RLock()
        self._spoken_for = 0

    def count(self, variants: Variants) -> None:
        """What these hold counts from here on, until they are gone."""
        with self._counting:
            self._built.add(variants)

    @property
    def executables(self) -> list[Executable]:
        """Of all plans: in force, standing by, being built, not yet let go. Each once."""
        with self._counting:
            everything = list(self._built)
        variants = [variant for v in everything for variant in v.built]
        return list({id(e): e for variant in variants for e in variant.executables}.values())

    @property
    def region_bytes(self) -> int:
        return sum(executable.held_bytes for executable in self.executables)

    @contextmanager
    def take(self, need: Callable[[], int]) -> Iterator[None]:
        """While something is built its bytes are spoken for; MemoryLimitError if too many."""
        needed = need()
        if self._total(needed) > self._limit:
            self._make_room()
        with self._counting:
            total = self._total(needed)
            if total > self._limit:
                raise MemoryLimitError(
                    f"the limit is {self._limit / 1e6:.0f} MB; while this plan is built"
                    f" {total / 1e6:.0f} MB would be held"
                )
            self._spoken_for += needed
        try:
            yield
        finally:
            with self._counting:
                self._spoken_for -= needed

    def _total(self, needed: int) -> int:
        return self._weight_bytes + self.region_bytes + self._spoken_for + needed
