"""The profile store: what was measured, kept in a file that several processes share.

Must not know SQL, nor what is decided from the rows.
"""

import sqlite3
from collections.abc import Callable, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from time import time
from types import TracebackType
from typing import TypeVar

from gearshift import settings
from gearshift.ir.measurement import Metric, Source
from gearshift.observe.store import codec, tables
from gearshift.observe.store.database import Database, Mode
from gearshift.observe.store.latency import latency_of
from gearshift.observe.store.rows import (
    DecisionRow,
    PlanKey,
    PlanRow,
    RegionKey,
    RegionRow,
    is_amount,
)
from gearshift.observe.store.tables import DECISIONS, FACTS, PLANS, REGIONS, Fields, Table
from gearshift.plan.plan import Plan
from gearshift.plan.text import dumps

FILE = "profiles.db"
PRUNE_EVERY = 256
"""Writes between two looks at how many rows there are."""

Row = TypeVar("Row")
Timed = TypeVar("Timed", PlanRow, RegionRow)


class Store:
    """Any thread may use it. Nothing here raises because of the file: what cannot be written is
    not kept, what cannot be read is not there. A write takes the time of a small transaction and
    may wait seconds for other processes, so it belongs on a background thread.

    Samples no call can take (`is_sample`) are not kept, and rows that could not
    come from such samples are not read. A row is a mean over `latency.count` samples: a single
    one moves it by its share, and readers bound their trust by the count. Times of day tell
    which rows go first when there are too many, and nothing else."""

    def __init__(self, database: Database, clock: Callable[[], float] = time) -> None:
        self._database, self._clock = database, clock
        self._num_writes = 0

    @property
    def mode(self) -> Mode:
        """Shared with others, only read, or in this process's memory."""
        return self._database.mode

    def add_plan(
        self, key: PlanKey, plan: Plan, seconds: Sequence[float], *, max_error: float | None
    ) -> int:
        """Merges the samples into the plan's row; how many were kept."""
        latency = latency_of(seconds)
        if latency is None or not is_amount(max_error):
            return 0
        new = PlanRow(
            key=key,
            fingerprint=plan.fingerprint,
            text=dumps(plan),
            latency=latency,
            max_error=max_error,
            seen_at_s=self._clock(),
        )

        def merge(connection: sqlite3.Connection) -> Fields:
            where = {**asdict(key), "fingerprint": new.fingerprint}
            old = _first(connection, PLANS, codec.plan_row, **where)
            return codec.plan_fields(new if old is None else _merged_plan(old, new))

        return latency.count if self._put(PLANS, codec.plan_fields(new), merge) else 0

    def plans(self, key: PlanKey) -> list[PlanRow]:
        """What was measured under this very key, the fastest first."""
        return _by_speed(self._rows(PLANS, codec.plan_row, **asdict(key)))

    def plans_of(self, *, machine: str, versions: str, graph: str) -> list[PlanRow]:
        """The same for every signature and context; each row's key tells which."""
        where = {"machine": machine, "versions": versions, "graph": graph}
        return _by_speed(self._rows(PLANS, codec.plan_row, **where))

    def add_region(
        self,
        key: RegionKey,
        seconds: Sequence[float],
        *,
        held_bytes: Metric = codec.UNAVAILABLE,
        build_s: float | None = None,
        max_error: float | None = None,
    ) -> int:
        """Merges the samples into the region's row; how many were kept."""
        latency = latency_of(seconds)
        if latency is None or not all(map(is_amount, (held_bytes.value, build_s, max_error))):
            return 0
        new = RegionRow(
            key=key,
            latency=latency,
            held_bytes=held_bytes,
            build_s=build_s,
            max_error=max_error,
            seen_at_s=self._clock(),
        )

        def merge(connection: sqlite3.Connection) -> Fields:
            old = _first(connection, REGIONS, codec.region_row, **asdict(key))
            return codec.region_fields(new if old is None else _merged_region(old, new))

        return latency.count if self._put(REGIONS, codec.region_fields(new), merge) else 0

    def regions(self, *, machine: str, versions: str, region: str | None = None) -> list[RegionRow]:
        """All settings one region was measured with, or all regions; the fastest first."""
        where = {"machine": machine, "versions": versions}
        where |= {} if region is None else {"region": region}
        return _by_speed(self._rows(REGIONS, codec.region_row, **where))

    def set_fact(self, machine: str, name: str, text: str) -> bool:
        """Keeps something that holds for a machine, as JSON text; the last one wins."""
        fields = (machine, name, text, self._clock())
        return self._put(FACTS, fields, lambda _: fields)

    def fact(self, machine: str, name: str) -> str | None:
        facts = self._rows(FACTS, lambda fields: fields[2], machine=machine, name=name)
        return str(facts[0]) if facts else None

    def add_decision(self, row: DecisionRow) -> bool:
        def numbered(connection: sqlite3.Connection) -> Fields:
            number = tables.last_number(connection, DECISIONS) + 1
            return codec.decision_fields(row, number)

        return self._put(DECISIONS, codec.decision_fields(row, 0), numbered)

    def decisions(self, *, machine: str, graph: str) -> list[DecisionRow]:
        """In the order they were written."""
        return self._rows(DECISIONS, codec.decision_row, machine=machine, graph=graph)

    def close(self) -> None:
        """Later writes are not kept, later reads find nothing."""
        self._database.close()

    def __enter__(self) -> "Store":
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def _put(
        self, table: Table, fields: Fields, merge: Callable[[sqlite3.Connection], Fields]
    ) -> bool:
        num_keys = len(table.key)
        if not codec.is_storable(fields[:num_keys], fields[num_keys:]):
            self._database.say(
                "unstorable", f"a row of {table.name} cannot be kept: {fields!r:.200}"
            )
            return False
        self._num_writes += 1
        pruning = self._num_writes % PRUNE_EVERY == 1

        def work(connection: sqlite3.Connection) -> bool:
            tables.put(connection, table, merge(connection))
            if pruning:
                tables.prune(connection)
            return True

        return self._database.write(work, default=False)

    def _rows(self, table: Table, read: Callable[[Fields], Row | None], **where: str) -> list[Row]:
        """The sound rows; those whose bytes changed on the disk are dropped for good."""
        if not codec.is_storable(tuple(where.values())):
            return []
        nothing: list[Fields] = []
        found = self._database.read(lambda c: tables.get(c, table, **where), default=nothing)
        damaged = [row for row in found if not tables.is_whole(table, row)]
        if damaged:
            self._drop(table, damaged)
            found = [row for row in found if row not in damaged]
        rows = [read(row[:-1]) for row in found]
        return [row for row in rows if row is not None]

    def _drop(self, table: Table, damaged: Sequence[Fields]) -> None:
        self._database.say("damaged", f"damaged rows of {table.name} were dropped")

        def work(connection: sqlite3.Connection) -> None:
            for row in damaged:
                tables.drop(connection, table, row)

        self._database.write(work, default=None)


def open_store(folder: Path | None = None) -> Store:
    """The store in this folder; by default in `GEARSHIFT_HOME`. Always gives one: see `mode`."""
    return Store(Database((folder or settings.home()) / FILE))


def memory_store() -> Store:
    """A store of its own that goes with the process."""
    return Store(Database(None))


def _first(
    connection: sqlite3.Connection,
    table: Table,
    read: Callable[[Fields], Row | None],
    **where: str,
) -> Row | None:
    found = tables.get(connection, table, **where)
    return read(found[0][:-1]) if found and tables.is_whole(table, found[0]) else None


def _merged_plan(old: PlanRow, new: PlanRow) -> PlanRow:
    return replace(
        new,
        latency=old.latency.faded().merged(new.latency),
        max_error=_larger(old.max_error, new.max_error),
    )


def _merged_region(old: RegionRow, new: RegionRow) -> RegionRow:
    held_bytes, build_s = new.held_bytes, new.build_s
    return replace(
        new,
        latency=old.latency.faded().merged(new.latency),
        held_bytes=old.held_bytes if held_bytes.source is Source.UNAVAILABLE else held_bytes,
        build_s=old.build_s if build_s is None else build_s,
        max_error=_larger(old.max_error, new.max_error),
    )


def _larger(one: float | None, other: float | None) -> float | None:
    return max((error for error in (one, other) if error is not None), default=None)


def _by_speed(rows: list[Timed]) -> list[Timed]:
    return sorted(rows, key=lambda row: row.latency.mean_s)
