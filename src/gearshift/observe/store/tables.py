"""The tables of the profile database: layout, version, and rows that carry a digest.

Must not know what a row means, nor who else has the file open.
"""

import hashlib
import sqlite3
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

SCHEMA_VERSION = 1
STAMP = 0x47656100
"""`application_id` is STAMP + version, so that a flipped version is not taken for a newer one."""

Fields = tuple[Any, ...]
PLAIN: tuple[type, ...] = (str, float, int)


@dataclass(frozen=True, slots=True, kw_only=True)
class Table:
    """Columns have no declared type: SQLite then keeps every value as it was given."""

    name: str
    key: tuple[str, ...]
    values: tuple[str, ...]
    oldest: str
    """The column by which rows are let go when there are too many."""
    max_rows: int

    @property
    def columns(self) -> tuple[str, ...]:
        return (*self.key, *self.values)

    @property
    def create(self) -> str:
        columns, key = ", ".join(self.columns), ", ".join(self.key)
        return f"CREATE TABLE {self.name} ({columns}, digest, PRIMARY KEY ({key})) WITHOUT ROWID"


LATENCY = ("count", "mean_s", "m2_s2")
PLANS = Table(
    name="plans",
    key=("machine", "versions", "graph", "signature", "context", "fingerprint"),
    values=("plan", *LATENCY, "max_error", "seen_at_s"),
    oldest="seen_at_s",
    max_rows=5_000,
)
REGIONS = Table(
    name="regions",
    key=("machine", "versions", "region", "signature", "engine", "rewrite", "context"),
    values=(*LATENCY, "held_bytes", "held_source", "build_s", "max_error", "seen_at_s"),
    oldest="seen_at_s",
    max_rows=20_000,
)
FACTS = Table(
    name="facts",
    key=("machine", "name"),
    values=("fact", "seen_at_s"),
    oldest="seen_at_s",
    max_rows=1_000,
)
DECISIONS = Table(
    name="decisions",
    key=("number",),
    values=(
        *("machine", "graph", "at_s", "fingerprint", "reason", "outcome"),
        *("predicted_gain", "measured_gain"),
    ),
    oldest="number",
    max_rows=10_000,
)
TABLES = (PLANS, REGIONS, FACTS, DECISIONS)


def plain(fields: Fields) -> Fields:
    """As SQLite will give them back: without the subclasses of numpy and enum."""
    return tuple(next((kind(f) for kind in PLAIN if isinstance(f, kind)), f) for f in fields)


def digest(table: Table, fields: Fields) -> str:
    """Of key and values: a row whose bytes changed on the disk does not match it."""
    text = repr((table.name, *fields))
    return hashlib.blake2b(text.encode(errors="replace"), digest_size=8).hexdigest()


def put(connection: sqlite3.Connection, table: Table, fields: Fields) -> None:
    marks = ", ".join("?" * (len(table.columns) + 1))
    sql = f"INSERT OR REPLACE INTO {table.name} VALUES ({marks})"
    kept = plain(fields)
    connection.execute(sql, (*kept, digest(table, kept)))


def get(connection: sqlite3.Connection, table: Table, **only: str) -> list[Fields]:
    """All rows with these columns, digest last, whether it matches or not."""
    where = " AND ".join(f"{column} = ?" for column in only) or "1"
    sql = f"SELECT * FROM {table.name} WHERE {where}"
    return connection.execute(sql, tuple(only.values())).fetchall()


def is_whole(table: Table, row: Fields) -> bool:
    return row[-1] == digest(table, row[:-1])


def drop(connection: sqlite3.Connection, table: Table, row: Fields) -> None:
    """Unless it was written anew since it was read."""
    where = " AND ".join(f"{column} IS ?" for column in (*table.key, "digest"))
    fields = (*row[: len(table.key)], row[-1])
    connection.execute(f"DELETE FROM {table.name} WHERE {where}", fields)


def last_number(connection: sqlite3.Connection, table: Table) -> int:
    (number,) = connection.execute(f"SELECT max({table.oldest}) FROM {table.name}").fetchone()
    return number if isinstance(number, int) else 0


def prune(connection: sqlite3.Connection, tables: Sequence[Table] = TABLES) -> None:
    """Lets go of the rows longest unseen, where there are too many."""
    for table in tables:
        (count,) = connection.execute(f"SELECT count(*) FROM {table.name}").fetchone()
        if count > table.max_rows:
            key = ", ".join(table.key)
            oldest = f"SELECT {key} FROM {table.name} ORDER BY {table.oldest} LIMIT ?"
            sql = f"DELETE FROM {table.name} WHERE ({key}) IN ({oldest})"
            connection.execute(sql, (count - table.max_rows,))


class Verdict(StrEnum):
    EMPTY = "empty"
    CURRENT = "current"
    OLDER = "older"
    NEWER = "newer"
    CORRUPT = "corrupt"


def judge(connection: sqlite3.Connection) -> Verdict:
    """What a file holds. Errors of SQLite are the caller's to judge."""
    (version,) = connection.execute("PRAGMA user_version").fetchone()
    (stamp,) = connection.execute("PRAGMA application_id").fetchone()
    found = {sql for (sql,) in connection.execute("SELECT sql FROM sqlite_master")}
    if not version and not stamp and not found:
        return Verdict.EMPTY
    if stamp - version != STAMP:
        return Verdict.CORRUPT
    if version != SCHEMA_VERSION:
        return Verdict.NEWER if version > SCHEMA_VERSION else Verdict.OLDER
    # Unlike quick_check it finds keys out of order, behind which rows written later are lost.
    sound = connection.execute("PRAGMA integrity_check(1)").fetchone() == ("ok",)
    as_made = found == {table.create for table in TABLES}
    return Verdict.CURRENT if sound and as_made else Verdict.CORRUPT


def make(connection: sqlite3.Connection) -> None:
    """Makes the tables anew; what an older version kept is let go, since it can be measured."""
    names = connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'").fetchall()
    for (name,) in names:
        connection.execute(f'DROP TABLE "{name}"')
    for table in TABLES:
        connection.execute(table.create)
    stamp(connection)


def stamp(connection: sqlite3.Connection) -> None:
    connection.execute(f"PRAGMA user_version = {SCHEMA_VERSION}")
    connection.execute(f"PRAGMA application_id = {STAMP + SCHEMA_VERSION}")
