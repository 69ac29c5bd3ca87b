"""One connection to the profile database, for any thread; outlives faults and forks.

Must not know what the tables hold.
"""

import logging
import os
import sqlite3
import threading
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from time import monotonic, sleep
from typing import TypeVar
from weakref import WeakSet

from gearshift.observe.store.fault import ERRORS, Fault, fault_of, transaction
from gearshift.observe.store.opening import (
    Connect,
    FileId,
    Mode,
    Opened,
    file_id,
    in_memory,
    opened,
)

log = logging.getLogger("gearshift")

BUSY_S, BUSY_PAUSE_S = 10.0, 0.002
"""How long a piece of work waits for other processes before it is given up."""
MAX_SET_ASIDE = 3
"""Files one process sets aside before it trusts the disk no more."""

T = TypeVar("T")
Work = Callable[[sqlite3.Connection], T]


class Database:
    """No error of SQLite leaves it: work that cannot be done gives the default."""

    def __init__(self, path: Path | None, connect: Connect = sqlite3.connect) -> None:
        self._path, self._connect = path, connect
        self._lock = threading.RLock()
        self._connection: sqlite3.Connection | None = None
        self._file: FileId | None = None
        self._mode = Mode.SHARED
        self._num_set_aside = 0
        self._said: set[str] = set()
        self._closed = False
        _OPEN.add(self)
        with self._lock:
            self._current()

    @property
    def mode(self) -> Mode:
        return self._mode

    def write(self, work: Work[T], default: T) -> T:
        """The work may run again, so it must have no effect but on the connection."""
        with self._lock:
            if self._mode is Mode.READ_ONLY:
                return default
            return self._run(lambda connection: transaction(connection, work), default)

    def read(self, work: Work[T], default: T) -> T:
        with self._lock:
            return self._run(work, default)

    def say(self, what: str, message: str) -> None:
        """Once for each kind of trouble."""
        if what not in self._said:
            self._said.add(what)
            log.warning("%s", message)

    def close(self) -> None:
        with self._lock:
            self._closed = True
            self._disconnect()
        _OPEN.discard(self)

    def suspend(self) -> None:
        """Before a fork: a connection to a file must not be seen by two processes."""
        self._lock.acquire()
        if self._mode is not Mode.MEMORY:
            self._disconnect()

    def resume(self) -> None:
        self._lock.release()

    def _run(self, work: Work[T], default: T) -> T:
        deadline_s = monotonic() + BUSY_S
        while not self._closed:
            try:
                return work(self._current())
            except ERRORS as error:
                fault = fault_of(error)
                if fault is Fault.BUSY and monotonic() < deadline_s:
                    sleep(BUSY_PAUSE_S)
                elif fault is not Fault.CORRUPT or not self._replace(error):
                    self._give_up(fault, error)
                    break
        return default

    def _current(self) -> sqlite3.Connection:
        """The connection, opened anew if another process set the file aside."""
        moved = self._mode is Mode.SHARED and self._path and file_id(self._path) != self._file
        if self._connection is None or moved:
            self._disconnect()
            self._adopt(
                opened(self._path, self._connect) if self._path else in_memory(self._connect)
            )
        assert self._connection is not None
        return self._connection

    def _adopt(self, opened: Opened) -> None:
        self._connection, self._file = opened.connection, opened.file
        if opened.mode is not Mode.SHARED or self._mode is not Mode.READ_ONLY:
            self._mode = opened.mode
        if opened.notice:
            self.say(opened.notice, opened.notice)

    def _replace(self, error: Exception) -> bool:
        """Goes on with a fresh file, or in memory if files keep going bad."""
        if self._path is None or self._mode is Mode.MEMORY:
            return False
        self._disconnect()
        self._num_set_aside += 1
        if self._mode is Mode.READ_ONLY or self._num_set_aside > MAX_SET_ASIDE:
            notice = f"{self._path} is corrupt ({error}); profiles stay in memory"
            self._adopt(in_memory(self._connect, notice))
        else:
            self._adopt(opened(self._path, self._connect, distrusted=self._file))
        return True

    def _give_up(self, fault: Fault, error: Exception) -> None:
        if fault is Fault.UNWRITABLE and self._mode is Mode.SHARED:
            self._mode = Mode.READ_ONLY
            self.say("unwritable", f"profiles are read but no longer written: {error}")
        else:
            self.say(fault, f"a profile was not kept: {error}")

    def _disconnect(self) -> None:
        if self._connection is not None:
            with suppress(*ERRORS):
                self._connection.close()
            self._connection = None


_OPEN: WeakSet[Database] = WeakSet()
_forking = threading.RLock()
_suspended: list[Database] = []


def _suspend_all() -> None:
    _forking.acquire()
    _suspended.extend(_OPEN)
    for database in _suspended:
        database.suspend()


def _resume_all() -> None:
    while _suspended:
        _suspended.pop().resume()
    _forking.release()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(
        before=_suspend_all, after_in_parent=_resume_all, after_in_child=_resume_all
    )
