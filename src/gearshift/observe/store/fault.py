"""What an error of SQLite means for a store, and transactions that leave nothing half done.

Must not know files or tables.
"""

import sqlite3
from collections.abc import Callable
from contextlib import suppress
from enum import StrEnum
from typing import TypeVar

T = TypeVar("T")
ERRORS = (sqlite3.Error, UnicodeDecodeError)
"""What a statement may raise: the message about a damaged schema may itself be no text."""


class Fault(StrEnum):
    BUSY = "busy"
    """Another process is at it; soon it will not be."""
    CORRUPT = "corrupt"
    """The file is not what was written."""
    UNWRITABLE = "unwritable"
    """No room, no permission, a broken disk; also whatever is not known."""


BUSY = {sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED, sqlite3.SQLITE_PROTOCOL}
CORRUPT = {
    sqlite3.SQLITE_CORRUPT,
    sqlite3.SQLITE_NOTADB,
    sqlite3.SQLITE_FORMAT,
    sqlite3.SQLITE_MISMATCH,
    sqlite3.SQLITE_CONSTRAINT,
    # The statements are right, so a missing table or column is missing from the file.
    sqlite3.SQLITE_ERROR,
}


def fault_of(error: Exception) -> Fault:
    code = getattr(error, "sqlite_errorcode", sqlite3.SQLITE_ERROR) & 0xFF
    if code in BUSY:
        return Fault.BUSY
    return Fault.CORRUPT if code in CORRUPT else Fault.UNWRITABLE


def transaction(connection: sqlite3.Connection, work: Callable[[sqlite3.Connection], T]) -> T:
    """All of the work or none of it; the write lock is taken first, so no reader is upgraded."""
    connection.execute("BEGIN IMMEDIATE")
    try:
        result = work(connection)
        connection.execute("COMMIT")
    except BaseException:
        if connection.in_transaction:
            with suppress(*ERRORS):
                connection.execute("ROLLBACK")
        raise
    return result
