"""Opens the profile database whatever state its file is in; sets a corrupt one aside.

Must not know what the tables mean, nor what happens to the connection afterwards.
"""

import fcntl
import os
import re
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from time import monotonic, sleep

from gearshift.observe.store.fault import ERRORS, Fault, fault_of, transaction
from gearshift.observe.store.tables import Verdict, judge, make, stamp

BUSY_MS = 250
LOCK_S, LOCK_PAUSE_S = 10.0, 0.01
MAX_KEPT = 3
"""Corrupt files kept for a look; the oldest goes first."""

Connect = Callable[..., sqlite3.Connection]
FileId = tuple[int, int]


class Mode(StrEnum):
    SHARED = "shared"
    READ_ONLY = "read-only"
    MEMORY = "memory"


@dataclass(frozen=True, slots=True, kw_only=True)
class Opened:
    connection: sqlite3.Connection
    mode: Mode
    file: FileId | None = None
    notice: str | None = None
    """What the user should hear of it."""


def opened(path: Path, connect: Connect, distrusted: FileId | None = None) -> Opened:
    """What cannot be written is read, what cannot be read is started in memory; never fails.
    A distrusted file is set aside unseen, unless another process has already replaced it."""
    deadline_s = monotonic() + LOCK_S
    while True:
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            with _alone(path.with_suffix(".lock")):
                return _shared(path, connect, distrusted)
        except ERRORS as error:
            if fault_of(error) is not Fault.BUSY or monotonic() > deadline_s:
                return _read_only(path, connect, str(error))
        except OSError as error:
            return _read_only(path, connect, str(error))


def in_memory(connect: Connect, notice: str | None = None) -> Opened:
    connection = _connection(connect, ":memory:")
    transaction(connection, make)
    return Opened(connection=connection, mode=Mode.MEMORY, notice=notice)


def file_id(path: Path) -> FileId | None:
    """Tells whether a path still names the file that was opened."""
    try:
        status = os.stat(path)
    except OSError:
        return None
    return status.st_dev, status.st_ino


@contextmanager
def _alone(lock: Path) -> Iterator[None]:
    """No other process opens or sets aside meanwhile. The system frees the lock of the dead."""
    descriptor = os.open(lock, os.O_RDWR | os.O_CREAT, 0o644)
    deadline_s = monotonic() + LOCK_S
    try:
        while True:
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                if monotonic() > deadline_s:
                    raise TimeoutError(f"{lock} is held by another process") from None
                sleep(LOCK_PAUSE_S)
        yield
    finally:
        os.close(descriptor)


def _shared(path: Path, connect: Connect, distrusted: FileId | None) -> Opened:
    notice = None
    if distrusted is not None and file_id(path) == distrusted:
        notice = _set_aside(path)
    _remove_orphans(path)
    connection, verdict = _prepared(path, connect)
    if verdict is Verdict.CORRUPT:
        connection.close()
        notice = _set_aside(path)
        connection, verdict = _prepared(path, connect)
    if verdict is Verdict.CURRENT:
        return Opened(connection=connection, mode=Mode.SHARED, file=file_id(path), notice=notice)
    connection.close()
    reason = "was written by a newer version" if verdict is Verdict.NEWER else "is corrupt again"
    return in_memory(connect, f"{path} {reason} and is left as it is; profiles stay in memory")


def _prepared(path: Path, connect: Connect) -> tuple[sqlite3.Connection, Verdict]:
    """Current and found to be writable, or else newer or corrupt."""
    connection = _connection(connect, str(path))
    try:
        verdict = judge(connection)
        if verdict in (Verdict.NEWER, Verdict.CORRUPT):
            return connection, verdict
        connection.execute("PRAGMA journal_mode = WAL")
        connection.execute("PRAGMA synchronous = NORMAL")
        # A write that changes nothing tells whether the file takes writes.
        transaction(connection, stamp if verdict is Verdict.CURRENT else make)
    except ERRORS as error:
        if fault_of(error) is Fault.CORRUPT or _denies_writing(error, path):
            return connection, Verdict.CORRUPT
        connection.close()
        raise
    return connection, Verdict.CURRENT


def _denies_writing(error: Exception, path: Path) -> bool:
    """The file says it is read-only where the system does not: its header was damaged."""
    code = getattr(error, "sqlite_errorcode", None)
    return code == sqlite3.SQLITE_READONLY and os.access(path, os.W_OK)


def _read_only(path: Path, connect: Connect, reason: str) -> Opened:
    """Without a shared-memory file beside it a file can only be read as if it never changed."""
    for how in ("mode=ro", "mode=ro&immutable=1"):
        with suppress(*ERRORS):
            connection = _connection(connect, f"{path.absolute().as_uri()}?{how}", uri=True)
            if judge(connection) is Verdict.CURRENT:
                notice = f"profiles in {path} can be read but not written: {reason}"
                return Opened(connection=connection, mode=Mode.READ_ONLY, notice=notice)
            connection.close()
    return in_memory(connect, f"profiles stay in memory, {path} cannot be used: {reason}")


def _connection(connect: Connect, name: str, uri: bool = False) -> sqlite3.Connection:
    connection = connect(
        name, timeout=BUSY_MS / 1000, isolation_level=None, check_same_thread=False, uri=uri
    )
    connection.text_factory = lambda data: data.decode(errors="replace")
    connection.execute("PRAGMA cell_size_check = ON")
    return connection


def _set_aside(path: Path) -> str:
    """Moves the file with its log and index, which a fresh one must not meet."""
    kept = sorted(_kept(path))
    number = kept[-1] + 1 if kept else 1
    for old in kept[: max(0, len(kept) - MAX_KEPT + 1)]:
        _remove(path.with_name(f"{path.name}.corrupt-{old}"))
    aside = path.with_name(f"{path.name}.corrupt-{number}")
    for end in ("-wal", "-shm", ""):
        with suppress(FileNotFoundError):
            os.replace(f"{path}{end}", f"{aside}{end}")
    return f"{path} was corrupt; it is kept as {aside.name} and a fresh one was started"


def _kept(path: Path) -> list[int]:
    names = [other.name for other in path.parent.glob(f"{path.name}.corrupt-*")]
    found = [re.fullmatch(r".*\.corrupt-(\d+)", name) for name in names]
    return [int(match[1]) for match in found if match]


def _remove_orphans(path: Path) -> None:
    """A log and an index without their database belong to one that was deleted."""
    if not path.exists():
        _remove(path)


def _remove(path: Path) -> None:
    for end in ("-wal", "-shm", ""):
        with suppress(FileNotFoundError):
            os.unlink(f"{path}{end}")
