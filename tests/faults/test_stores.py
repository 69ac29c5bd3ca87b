"""Rows E1 to E4 and E6: the profile store outlives full disks, flipped bytes, kills and crowds.

Reads what a store says and what its file holds; nothing here needs a model.
"""

import fcntl
import logging
import math
import os
import random
import shutil
import signal
import sqlite3
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import closing, suppress
from pathlib import Path
from typing import Any

import pytest

from faults import store_writer
from gearshift.ir.measurement import Metric, Source
from gearshift.observe.store import (
    Mode,
    PlanKey,
    PlanRow,
    RegionKey,
    Store,
    check_store,
    memory_store,
    open_store,
    tables,
)
from gearshift.observe.store.database import Database
from gearshift.plan.plan import Plan, Region

WRITER = Path(store_writer.__file__)
MACHINE, VERSIONS = store_writer.MACHINE, store_writer.VERSIONS
PLANS = [Plan(regions=(Region(ops=(f"a{i}", "b")),)) for i in range(12)]


def plan_key(**changes: str) -> PlanKey:
    given = {"machine": MACHINE, "versions": VERSIONS, "graph": "g", "signature": "s"}
    return PlanKey(**{**given, **changes})


def region_key(region: str = "r") -> RegionKey:
    return RegionKey(
        machine=MACHINE,
        versions=VERSIONS,
        region=region,
        signature="s",
        engine="cpu:0",
        rewrite="onnxruntime x2",
    )


def filled(folder: Path) -> Path:
    """A closed store with some of everything; the file."""
    with open_store(folder) as store:
        for number, plan in enumerate(PLANS):
            assert store.add_plan(plan_key(), plan, [0.01 * (number + 1), 0.02], max_error=1e-6)
            assert store.add_region(region_key(f"r{number}"), [0.01], build_s=1.0)
        assert store.set_fact(MACHINE, "roofline", "[1, 2]")
    return folder / "profiles.db"


def whole_plans(store: Store) -> dict[str, PlanRow]:
    return {row.fingerprint: row for row in store.plans(plan_key())}


@pytest.fixture
def warnings(caplog: pytest.LogCaptureFixture) -> Callable[[], list[str]]:
    caplog.set_level(logging.WARNING, logger="gearshift")
    return lambda: [record.getMessage() for record in caplog.records]


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of half a megabyte of its own."""
    disk = tmp_path / "disk"
    disk.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=512k", "none", str(disk)]
    if os.geteuid() != 0 or subprocess.run(mount, capture_output=True).returncode != 0:
        pytest.skip("mounting a small disk needs root; faults are injected elsewhere")
    yield disk
    subprocess.run(["umount", "-l", str(disk)], check=True)


def fill(disk: Path) -> None:
    with suppress(OSError), (disk / "filler").open("wb", buffering=0) as file:
        while True:
            file.write(b"x" * 4096)
    assert shutil.disk_usage(disk).free == 0


def test_E1_a_disk_that_fills_up_stops_writing_and_nothing_else(
    small_disk: Path, warnings: Callable[[], list[str]]
) -> None:
    with open_store(small_disk) as store:
        text = "x" * 10_000
        kept = [name for name in map(str, range(200)) if store.set_fact(MACHINE, name, text)]
        assert 5 < len(kept) < 199
        assert store.mode is Mode.READ_ONLY
        assert store.add_plan(plan_key(), PLANS[0], [0.1], max_error=0.0) == 0
        assert [store.fact(MACHINE, name) for name in kept] == [text] * len(kept)
        assert len(warnings()) == 1


def test_E1_a_store_opened_on_a_full_disk_reads_what_is_there(
    small_disk: Path, warnings: Callable[[], list[str]]
) -> None:
    filled(small_disk)
    fill(small_disk)
    with open_store(small_disk) as store:
        store.set_fact(MACHINE, "new", "1" * 50_000)
        assert store.mode is Mode.READ_ONLY
        assert len(whole_plans(store)) == len(PLANS)
        assert store.fact(MACHINE, "roofline") == "[1, 2]"
    assert len(warnings()) == 1


def test_E1_a_store_started_on_a_full_disk_lives_in_memory(
    small_disk: Path, warnings: Callable[[], list[str]]
) -> None:
    fill(small_disk)
    with open_store(small_disk / "home") as store:
        assert store.mode is Mode.MEMORY
        assert store.add_plan(plan_key(), PLANS[0], [0.1], max_error=0.0) == 1
        assert len(whole_plans(store)) == 1
    assert len(warnings()) == 1


def test_E1_a_disk_mounted_for_reading_is_read(
    small_disk: Path, warnings: Callable[[], list[str]]
) -> None:
    filled(small_disk)
    subprocess.run(["mount", "-o", "remount,ro", str(small_disk)], check=True)
    with open_store(small_disk) as store:
        assert store.mode is Mode.READ_ONLY
        assert len(whole_plans(store)) == len(PLANS)
        assert not store.set_fact(MACHINE, "new", "1")
    assert len(warnings()) == 1


def test_E1_a_home_that_cannot_be_a_folder_is_done_without(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")
    store = open_store(tmp_path / "file")
    assert store.mode is Mode.MEMORY
    check_store(store)


class Failing(sqlite3.Connection):
    """From the nth statement that writes on, each fails."""

    code = sqlite3.SQLITE_FULL
    num_good = 0
    num_failed = 0
    writes = ("BEGIN", "INSERT", "DELETE", "CREATE", "COMMIT", "PRAGMA journal", "PRAGMA user_v")

    def execute(self, sql: str, *parameters: Any) -> sqlite3.Cursor:
        if sql.startswith(self.writes) and sql != "PRAGMA user_version":
            Failing.num_good -= 1
            if Failing.num_good < 0:
                Failing.num_failed += 1
                error = sqlite3.OperationalError("injected")
                error.sqlite_errorcode = Failing.code
                raise error
        return super().execute(sql, *parameters)


def failing(name: str, **options: Any) -> sqlite3.Connection:
    kind = sqlite3.Connection if name == ":memory:" else Failing
    return sqlite3.connect(name, factory=kind, **options)


def test_E1_a_file_that_becomes_read_only_is_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, warnings: Callable[[], list[str]]
) -> None:
    file = filled(tmp_path)
    monkeypatch.setattr(Failing, "code", sqlite3.SQLITE_READONLY)
    monkeypatch.setattr(Failing, "num_good", 100)
    with closing(Store(Database(file, connect=failing))) as store:
        monkeypatch.setattr(Failing, "num_good", 0)
        assert not store.set_fact(MACHINE, "new", "1")
        assert store.mode is Mode.READ_ONLY
        assert len(whole_plans(store)) == len(PLANS)
    assert len(warnings()) == 1


def some_of_everything(store: Store) -> None:
    for number in range(2):
        store.add_plan(plan_key(), PLANS[number], [0.1], max_error=0.0)
        store.add_region(region_key(f"r{number}"), [0.1])
        store.set_fact(MACHINE, "fact", "1")


@pytest.mark.parametrize("known", [True, False])
@pytest.mark.parametrize("code", ["SQLITE_FULL", "SQLITE_IOERR_WRITE", "SQLITE_CANTOPEN"])
def test_E1_no_statement_that_fails_reaches_the_caller(
    code: str,
    known: bool,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    monkeypatch.setattr(Failing, "code", getattr(sqlite3, code))
    for num_good in range(50):
        folder = tmp_path / str(num_good)
        if known:
            filled(folder)
        caplog.clear()
        monkeypatch.setattr(Failing, "num_good", num_good)
        monkeypatch.setattr(Failing, "num_failed", 0)
        with closing(Store(Database(folder / "profiles.db", connect=failing))) as store:
            some_of_everything(store)
            if Failing.num_failed == 0:
                break
            assert store.mode is not Mode.SHARED
            assert not known or len(whole_plans(store)) == len(PLANS)
            assert len(caplog.records) == 1
    assert 15 < num_good < 49, "every statement failed once, none in the end"


def damaged(content: bytes, draw: random.Random) -> bytes:
    """Some bytes flipped, a run of them overwritten, or the end cut off."""
    data = bytearray(content)
    how = draw.random()
    if how < 0.7:
        for _ in range(draw.choice((1, 1, 4, 64))):
            data[draw.randrange(len(data))] ^= draw.randrange(1, 256)
    elif how < 0.9:
        start, length = draw.randrange(len(data)), draw.randrange(1, 5000)
        data[start : start + length] = draw.randbytes(min(length, len(data) - start))
    else:
        del data[draw.randrange(len(data)) :]
    return bytes(data)


def survives_damage(folder: Path, content: bytes, rows: dict[str, PlanRow]) -> bool:
    """Whether anything was lost to the damage; what is read is right, and life goes on."""
    folder.mkdir()
    (folder / "profiles.db").write_bytes(content)
    with open_store(folder) as store:
        found = whole_plans(store)
        assert found == {name: rows[name] for name in found}
        assert store.fact(MACHINE, "roofline") in ("[1, 2]", None)
        list(store.regions(machine=MACHINE, versions=VERSIONS))
        assert store.mode is Mode.SHARED
        fresh = plan_key(graph="new")
        assert store.add_plan(fresh, PLANS[0], [0.1], max_error=0.0) == 1
        assert [row.latency.count for row in store.plans(fresh)] == [1]
    with open_store(folder) as again:
        assert again.mode is Mode.SHARED
        assert [row.latency.count for row in again.plans(fresh)] == [1]
    return len(found) < len(rows)


def flips(tmp_path: Path, seeds: range) -> int:
    file = filled(tmp_path / "template")
    content = file.read_bytes()
    with open_store(file.parent) as store:
        rows = whole_plans(store)
    assert len(rows) == len(PLANS)
    num_lossy = 0
    for seed in seeds:
        folder = tmp_path / str(seed)
        num_lossy += survives_damage(folder, damaged(content, random.Random(seed)), rows)
        shutil.rmtree(folder)
    return num_lossy


def test_E2_flipped_bytes_never_give_a_wrong_plan(tmp_path: Path) -> None:
    assert flips(tmp_path, range(60)) > 10


@pytest.mark.soak
def test_E2_flipped_bytes_never_give_a_wrong_plan_in_two_thousand_files(tmp_path: Path) -> None:
    assert flips(tmp_path, range(1000, 3000)) > 300


def test_E2_each_byte_of_the_header_may_flip(tmp_path: Path) -> None:
    file = filled(tmp_path / "template")
    content = file.read_bytes()
    with open_store(file.parent) as store:
        rows = whole_plans(store)
    for offset in range(100):
        data = bytearray(content)
        data[offset] ^= 0x55
        survives_damage(tmp_path / str(offset), bytes(data), rows)


def test_E2_a_corrupt_file_is_kept_aside_and_not_too_many(
    tmp_path: Path, warnings: Callable[[], list[str]]
) -> None:
    for number in range(6):
        (tmp_path / "profiles.db").write_bytes(b"no database at all" * 100)
        with open_store(tmp_path) as store:
            assert store.mode is Mode.SHARED
        assert len(warnings()) == number + 1
    kept = sorted(path.name for path in tmp_path.glob("*.corrupt-*"))
    assert kept == [f"profiles.db.corrupt-{number}" for number in (4, 5, 6)]


def test_E2_a_changed_digit_costs_one_row(
    tmp_path: Path, warnings: Callable[[], list[str]]
) -> None:
    file = filled(tmp_path)
    victim = PLANS[3].fingerprint
    with closing(sqlite3.connect(file, isolation_level=None)) as connection:
        connection.execute("UPDATE plans SET mean_s = 0.001 WHERE fingerprint = ?", (victim,))
    with open_store(tmp_path) as store:
        assert whole_plans(store).keys() == {plan.fingerprint for plan in PLANS} - {victim}
        assert len(warnings()) == 1
    with closing(sqlite3.connect(file)) as connection:
        (count,) = connection.execute("SELECT count(*) FROM plans").fetchone()
    assert count == len(PLANS) - 1


def overwrite_from_outside(file: Path) -> None:
    """By another process: closing a file frees all locks the own process has on it."""
    command = ["dd", "if=/dev/urandom", f"of={file}", "conv=notrunc", "status=none", "bs=4096"]
    subprocess.run([*command, f"count={file.stat().st_size // 4096}"], check=True)


def test_E2_a_file_that_goes_bad_while_open_is_replaced(tmp_path: Path) -> None:
    file = filled(tmp_path)
    with open_store(tmp_path) as store, open_store(tmp_path) as other:
        overwrite_from_outside(file)
        known = {plan.fingerprint for plan in PLANS}
        assert whole_plans(store).keys() <= known
        assert store.add_plan(plan_key(graph="new"), PLANS[0], [0.1], max_error=0.0) == 1
        assert other.add_plan(plan_key(graph="new"), PLANS[0], [0.1], max_error=0.0) == 1
        (row,) = store.plans(plan_key(graph="new"))
        assert row.latency.count == 2
        assert store.mode is other.mode is Mode.SHARED


def kill_while_writing(folder: Path, name: str, delay_s: float, settled: bool) -> int:
    """How many rows the writer had been told are kept when it was killed."""
    command = [sys.executable, str(WRITER), "forever", str(folder), name]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as writer:
        assert writer.stdout is not None
        if settled:
            assert writer.stdout.readline() == "1\n"
        time.sleep(delay_s)
        writer.send_signal(signal.SIGKILL)
        lines = writer.stdout.read().split("\n")
    said = [int(line) for line in lines[:-1]]
    return said[-1] if said else int(settled)


def kills(folder: Path, count: int) -> None:
    draw = random.Random(0)
    for number in range(count):
        settled = number % 3 != 0  # others are killed while they start, open and write first
        delay_s = draw.uniform(0, 0.1) if settled else draw.uniform(0.05, 0.3)
        num_kept = kill_while_writing(folder, str(number), delay_s, settled)
        with open_store(folder) as store:
            assert store.mode is Mode.SHARED
            rows = store.decisions(machine=MACHINE, graph=str(number))
            said = [int(row.decision.reason) for row in rows]
            assert said == list(range(1, len(said) + 1))
            assert num_kept <= len(said) <= num_kept + 1
    assert not list(folder.glob("*.corrupt-*"))


def test_E3_a_killed_writer_loses_nothing_it_was_told_is_kept(tmp_path: Path) -> None:
    kills(tmp_path, 10)


@pytest.mark.soak
def test_E3_a_hundred_killed_writers_lose_nothing(tmp_path: Path) -> None:
    kills(tmp_path, 100)


@pytest.mark.capability("core.store")
def test_E4_eight_processes_share_a_store(
    tmp_path: Path, warnings: Callable[[], list[str]]
) -> None:
    num_writers, num_rows = 8, 40
    command = [sys.executable, str(WRITER), "together", str(tmp_path)]
    writers = [
        subprocess.Popen(
            [*command, f"g{number}", str(num_rows)],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for number in range(num_writers)
    ]
    (tmp_path / "go").touch()
    answers = [writer.communicate(timeout=60) for writer in writers]
    assert answers == [(f"{num_rows}\n", "")] * num_writers
    with open_store(tmp_path) as store:
        (row,) = store.plans(plan_key(graph="shared"))
        assert row.latency.count == num_writers * num_rows
        assert row.latency.mean_s == pytest.approx(0.001 * (num_rows + 1) / 2, rel=1e-9)
        for number in range(num_writers):
            (own,) = store.plans(plan_key(graph=f"g{number}"))
            assert own.latency.count == num_rows
    assert not warnings()


def test_E4_a_lock_that_is_never_let_go_is_waited_for_within_bounds(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, warnings: Callable[[], list[str]]
) -> None:
    monkeypatch.setattr("gearshift.observe.store.database.BUSY_S", 0.3)
    file = filled(tmp_path)
    with open_store(tmp_path) as store, closing(sqlite3.connect(file)) as holder:
        holder.execute("BEGIN IMMEDIATE")
        begin_s = time.monotonic()
        assert store.add_plan(plan_key(), PLANS[0], [0.1], max_error=0.0) == 0
        assert store.add_plan(plan_key(), PLANS[0], [0.1], max_error=0.0) == 0
        assert time.monotonic() - begin_s < 3
        assert len(whole_plans(store)) == len(PLANS)
        holder.rollback()
        assert store.add_plan(plan_key(), PLANS[0], [0.1], max_error=0.0) == 1
    assert len(warnings()) == 1


def test_E4_a_process_stuck_while_opening_leaves_the_rows_to_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, warnings: Callable[[], list[str]]
) -> None:
    monkeypatch.setattr("gearshift.observe.store.opening.LOCK_S", 0.2)
    filled(tmp_path)
    with (tmp_path / "profiles.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        with open_store(tmp_path) as store:
            assert store.mode is Mode.READ_ONLY
            assert len(whole_plans(store)) == len(PLANS)
    assert len(warnings()) == 1


POISON = [-1.0, 0.0, math.nan, math.inf, -math.inf, 1e-9, 4000.0]


@pytest.mark.parametrize("seconds", POISON)
def test_E6_poisoned_samples_are_not_kept(seconds: float) -> None:
    with memory_store() as store:
        assert store.add_plan(plan_key(), PLANS[0], [seconds], max_error=0.0) == 0
        assert store.add_region(region_key(), [seconds]) == 0
        assert store.plans(plan_key()) == []
        assert store.add_plan(plan_key(), PLANS[0], [0.1, seconds, 0.3], max_error=0.0) == 2
        (row,) = store.plans(plan_key())
        assert row.latency.mean_s == pytest.approx(0.2)


@pytest.mark.parametrize("amount", [-1.0, math.nan, math.inf])
def test_E6_poisoned_amounts_are_not_kept(amount: float) -> None:
    with memory_store() as store:
        assert store.add_plan(plan_key(), PLANS[0], [0.1], max_error=amount) == 0
        assert store.add_region(region_key(), [0.1], max_error=amount) == 0
        assert store.add_region(region_key(), [0.1], build_s=amount) == 0
        held_bytes = Metric(value=amount, source=Source.MEASURED)
        assert store.add_region(region_key(), [0.1], held_bytes=held_bytes) == 0
        assert store.regions(machine=MACHINE, versions=VERSIONS) == []


@pytest.mark.parametrize("seconds", [*POISON, None, "0.1", 1])
def test_E6_poisoned_rows_are_not_read_and_not_merged(tmp_path: Path, seconds: Any) -> None:
    file = filled(tmp_path)
    fast = PLANS[0]
    fields = (MACHINE, VERSIONS, "g", "s", "", fast.fingerprint, "{}", 9, seconds, 0.0, 0.0, 1.0)
    with closing(sqlite3.connect(file, isolation_level=None)) as connection:
        tables.put(connection, tables.PLANS, fields)
    with open_store(tmp_path) as store:
        assert fast.fingerprint not in whole_plans(store)
        assert len(whole_plans(store)) == len(PLANS) - 1
        assert store.add_plan(plan_key(), fast, [0.5], max_error=0.0) == 1
        latency = whole_plans(store)[fast.fingerprint].latency
        assert (latency.count, latency.mean_s) == (1, 0.5)


def test_E6_one_sample_moves_a_mean_by_no_more_than_its_share() -> None:
    with memory_store() as store:
        store.add_plan(plan_key(), PLANS[0], [0.1] * 999, max_error=0.0)
        store.add_plan(plan_key(), PLANS[0], [3600.0], max_error=0.0)
        (row,) = store.plans(plan_key())
        assert row.latency.mean_s == pytest.approx(0.1 + 3600 / 1000, rel=1e-3)
        assert row.latency.variance_s2 is not None
        assert row.latency.variance_s2 > 1e4, "the spread tells that the mean is not to be trusted"
