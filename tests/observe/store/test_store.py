"""What the profile store keeps, merges, tells apart and lets go.
Knows files only as folders to open; faults of the disk are in tests/faults/test_stores.py.
"""

import json
import logging
import os
import random
import sqlite3
import statistics
import threading
from collections.abc import Callable
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from gearshift.ir.measurement import Metric, Source
from gearshift.observe.store import (
    DecisionRow,
    Mode,
    PlanKey,
    RegionKey,
    Store,
    check_store,
    memory_store,
    open_store,
    tables,
)
from gearshift.observe.store.database import Database
from gearshift.observe.store.latency import latency_of
from gearshift.plan import Plan, Region
from gearshift.plan.decision import Decision
from gearshift.plan.plan import whole
from tests.graphs import ORT_2, chain, diamond

KEY = PlanKey(machine="m", versions="v", graph="g", signature="float32[2, 8]")
REGION = RegionKey(
    machine="m", versions="v", region="r", signature="s", engine="cpu:0", rewrite="onnxruntime x2"
)
PLAN = whole(chain(), rewrite=ORT_2)
DECISION = Decision(at_s=5.0, plan=PLAN.fingerprint, reason="a core got busy", outcome="kept")


def add(store: Store, *seconds: float, key: PlanKey = KEY, plan: Plan = PLAN) -> int:
    return store.add_plan(key, plan, seconds, max_error=1e-6)


@pytest.fixture(params=["file", "memory"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Store:
    return open_store(tmp_path) if request.param == "file" else memory_store()


def test_every_kind_of_store_meets_its_duties(store: Store) -> None:
    check_store(store)


@pytest.mark.capability("core.store")
def test_what_one_start_learns_the_next_one_knows(tmp_path: Path) -> None:
    row = DecisionRow(machine="m", graph="g", decision=DECISION)
    with open_store(tmp_path) as first:
        assert add(first, 0.1, 0.2) == 2
        assert first.add_region(REGION, [0.1], build_s=2.0) == 1
        assert first.set_fact("m", "roofline", json.dumps([1.5, 2]))
        assert first.add_decision(row)
        plans = first.plans(KEY)
    with open_store(tmp_path) as second:
        assert second.plans(KEY) == plans
        assert plans[0].plan(chain()) == PLAN
        assert [r.key for r in second.regions(machine="m", versions="v")] == [REGION]
        assert json.loads(second.fact("m", "roofline") or "") == [1.5, 2]
        assert second.decisions(machine="m", graph="g") == [row]


def test_samples_in_any_portions_add_up_to_the_same() -> None:
    draw = random.Random(0)
    samples = [draw.uniform(0.001, 0.1) for _ in range(200)]
    with memory_store() as store:
        start = 0
        while start < len(samples):
            size = draw.randrange(1, 12)
            add(store, *samples[start : start + size])
            start += size
        (row,) = store.plans(KEY)
    assert row.latency.count == 200
    assert row.latency.mean_s == pytest.approx(statistics.fmean(samples))
    assert row.latency.variance_s2 == pytest.approx(statistics.variance(samples))


def test_one_sample_has_no_spread() -> None:
    latency = latency_of([0.5])
    assert latency is not None
    assert latency.variance_s2 is None


def test_the_fastest_plan_comes_first_and_contexts_are_told_apart() -> None:
    eager, busy = whole(chain()), replace(KEY, context="busy")
    with memory_store() as store:
        add(store, 0.3, plan=eager)
        add(store, 0.1)
        add(store, 0.2, plan=eager, key=busy)
        assert [row.plan(chain()) for row in store.plans(KEY)] == [PLAN, eager]
        rows = store.plans_of(machine="m", versions="v", graph="g")
        assert [row.key.context for row in rows] == ["", "busy", ""]
        for other in ("machine", "versions", "graph", "signature"):
            assert store.plans(replace(KEY, **{other: "other"})) == []


def test_a_plan_of_another_graph_is_no_plan() -> None:
    with memory_store() as store:
        add(store, 0.1)
        (row,) = store.plans(KEY)
        assert row.plan(diamond()) is None
        assert replace(row, fingerprint="other").plan(chain()) is None


def test_what_is_not_measured_again_stays_and_errors_only_grow() -> None:
    held_bytes = Metric(value=100.0, source=Source.MODELLED)
    with memory_store() as store:
        store.add_region(REGION, [0.1], held_bytes=held_bytes, build_s=2.0, max_error=1e-6)
        store.add_region(REGION, [0.3], max_error=1e-7)
        (row,) = store.regions(machine="m", versions="v", region="r")
        assert (row.held_bytes, row.build_s, row.max_error) == (held_bytes, 2.0, 1e-6)
        assert (row.latency.count, row.latency.mean_s) == (2, pytest.approx(0.2))
        store.add_region(REGION, [0.3], build_s=3.0, max_error=1e-5)
        (row,) = store.regions(machine="m", versions="v")
        assert (row.held_bytes, row.build_s, row.max_error) == (held_bytes, 3.0, 1e-5)


def test_numbers_and_texts_of_other_kinds_are_kept_as_plain_ones(tmp_path: Path) -> None:
    key = replace(KEY, context=Source.MEASURED)
    with open_store(tmp_path) as store:
        seconds = np.array([0.25, 0.75])
        assert store.add_plan(key, PLAN, seconds, max_error=np.float64(0.5)) == 2
    with open_store(tmp_path) as store:
        (row,) = store.plans(replace(KEY, context="measured"))
        assert (row.latency.mean_s, row.max_error) == (0.5, 0.5)


@pytest.mark.parametrize("text", ["\ud800", "x" * (1 << 21), "a\0b", "ü\U0001f600'\"; --"])
def test_any_text_may_be_a_key(store: Store, text: str) -> None:
    key = replace(KEY, context=text)
    kept = add(store, 0.1, key=key)
    assert [row.key for row in store.plans(key)] == [key] * kept
    assert add(store, 0.1) == 1


def test_rows_longest_unseen_go_when_there_are_too_many(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    few = tuple(replace(table, max_rows=10) for table in tables.TABLES)
    monkeypatch.setattr(tables.prune, "__defaults__", (few,))
    monkeypatch.setattr("gearshift.observe.store.store.PRUNE_EVERY", 5)
    now_s = iter(range(10**6))
    with closing(Store(Database(tmp_path / "profiles.db"), lambda: float(next(now_s)))) as store:
        for number in range(36):
            add(store, 0.1, key=replace(KEY, signature=str(number)))
            store.add_decision(DecisionRow(machine="m", graph=str(number), decision=DECISION))
            add(store, 0.1)
        rows = store.plans_of(machine="m", versions="v", graph="g")
        assert len(rows) < 15
        kept = {row.key.signature for row in rows}
        assert KEY.signature in kept, "a row that is seen again and again is the last to go"
        assert "35" in kept
        assert "0" not in kept
        assert store.decisions(machine="m", graph="35")
        assert not store.decisions(machine="m", graph="0")


@pytest.mark.parametrize("jump_s", [3600.0, -3600.0, -1e10])
def test_a_clock_that_jumps_changes_nothing(jump_s: float) -> None:
    now_s = [1e9]
    store = Store(Database(None), lambda: now_s[0])
    add(store, 0.1)
    now_s[0] += jump_s
    add(store, 0.3)
    (row,) = store.plans(KEY)
    assert (row.latency.count, row.latency.mean_s) == (2, pytest.approx(0.2))


def versioned(folder: Path, version: int) -> bytes:
    """The file of a store, with rows, that another version wrote."""
    with open_store(folder) as store:
        add(store, 0.1)
    file = folder / "profiles.db"
    with closing(sqlite3.connect(file, isolation_level=None)) as connection:
        connection.execute(f"PRAGMA user_version = {version}")
        connection.execute(f"PRAGMA application_id = {tables.STAMP + version}")
        connection.execute("CREATE TABLE something_else (a, b)")
    return file.read_bytes()


def test_a_newer_file_is_left_as_it_is(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    content = versioned(tmp_path, tables.SCHEMA_VERSION + 1)
    with open_store(tmp_path) as store:
        assert store.mode is Mode.MEMORY
        assert add(store, 0.1) == 1
        assert [row.latency.count for row in store.plans(KEY)] == [1]
    assert (tmp_path / "profiles.db").read_bytes() == content
    assert ["newer" in record.getMessage() for record in caplog.records] == [True]


def test_an_older_file_is_made_anew(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    versioned(tmp_path, tables.SCHEMA_VERSION)
    monkeypatch.setattr(tables, "SCHEMA_VERSION", tables.SCHEMA_VERSION + 1)
    with open_store(tmp_path) as store:
        assert store.mode is Mode.SHARED
        assert store.plans(KEY) == []
        assert add(store, 0.1) == 1
    with open_store(tmp_path) as store:
        assert [row.latency.count for row in store.plans(KEY)] == [1]
    assert not list(tmp_path.glob("*.corrupt-*"))


def test_any_thread_may_use_it(store: Store) -> None:
    def work() -> None:
        for _ in range(25):
            assert add(store, 0.1) == 1
            assert store.plans(KEY)

    threads = [threading.Thread(target=work) for _ in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    (row,) = store.plans(KEY)
    assert row.latency.count == 150


def in_child(work: Callable[[], bool]) -> bool:
    """Whether the work went well in a fork of this process."""
    pid = os.fork()
    if pid == 0:
        try:
            os._exit(0 if work() else 1)
        finally:
            os._exit(2)
    return os.waitpid(pid, 0)[1] == 0


def test_a_fork_and_its_parent_both_go_on(tmp_path: Path) -> None:
    with open_store(tmp_path) as store:
        add(store, 0.1)
        assert in_child(lambda: add(store, 0.1) == 1 and store.mode is Mode.SHARED)
        assert add(store, 0.1) == 1
        assert [row.latency.count for row in store.plans(KEY)] == [3]


def test_a_fork_amid_writes_of_another_thread_harms_neither(tmp_path: Path) -> None:
    with open_store(tmp_path) as store:
        done = threading.Event()
        kept = []

        def work() -> None:
            while not done.is_set():
                kept.append(add(store, 0.1))

        thread = threading.Thread(target=work)
        thread.start()
        forks = [in_child(lambda: add(store, 0.1) == 1) for _ in range(5)]
        done.set()
        thread.join()
        assert all(forks)
        assert [row.latency.count for row in store.plans(KEY)] == [sum(kept) + 5]
        assert sum(kept) == len(kept)


def test_a_file_deleted_under_way_is_started_anew(tmp_path: Path) -> None:
    with open_store(tmp_path) as store:
        add(store, 0.1)
        (tmp_path / "profiles.db").unlink()
        assert add(store, 0.1) == 1
        assert [row.latency.count for row in store.plans(KEY)] == [1]
    with open_store(tmp_path) as store:
        assert [row.latency.count for row in store.plans(KEY)] == [1]


def test_no_folder_means_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GEARSHIFT_HOME", str(tmp_path / "deep" / "home"))
    with open_store() as store:
        assert store.mode is Mode.SHARED
    assert (tmp_path / "deep" / "home" / "profiles.db").exists()


def test_what_cannot_be_kept_is_said_once(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.WARNING, logger="gearshift")
    with memory_store() as store:
        assert add(store, 0.1, key=replace(KEY, graph=None)) == 0  # type: ignore[arg-type]
        assert not store.set_fact("m", "n", "\udfff")
        assert add(store, 0.1, plan=Plan(regions=(Region(ops=("x" * (1 << 21),)),))) == 0
        assert store.plans(KEY) == []
    assert len(caplog.records) == 1
