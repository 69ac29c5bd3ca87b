import os
import time
from pathlib import Path

import pytest

from gearshift.observe.hal import check_counters
from gearshift.observe.hal.proc_stat import ProcStat
from gearshift.observe.hal.process_tree import ProcessTree
from tests.observe.hal.machines import write, write_stat, write_task
from tests.observe.hal.neighbours import busy_thread, neighbour


def test_busy_and_others_of_each_core(tmp_path: Path) -> None:
    write_task(tmp_path, 1, 1, run_s=3.0, core=2)
    write_stat(tmp_path, {0: 100, 2: 100}, {0: 500, 2: 500})
    tree = ProcessTree(proc=tmp_path, pid=1)
    stat = ProcStat(cores=(0, 2), tree=tree, proc=tmp_path)
    assert all(metric.value is None for metric in stat.read(0.0).values())
    write_stat(tmp_path, {0: 140, 2: 180}, {0: 540, 2: 500}, stolen=20)
    write_task(tmp_path, 1, 1, run_s=3.5, core=2)
    readings = stat.read(1.0)
    values = {name: metric.value for name, metric in readings.items()}
    assert values == pytest.approx(
        {
            "core.0.busy_share": 0.4,
            "core.0.others_share": 0.4,
            "core.2.busy_share": 0.8,
            "core.2.others_share": 0.3,
            "cpu.busy_share": 0.6,
            "cpu.others_share": 0.35,
            "cpu.stolen_share": 0.2,
        }
    )
    assert stat.read(1.01) == readings, "too soon for the kernel's ticks: the last value stands"
    check_counters(stat, now_s=2.0)


def test_a_core_that_is_not_there_and_a_broken_file_are_unavailable(tmp_path: Path) -> None:
    write_task(tmp_path, 1, 1, run_s=3.0)
    write(tmp_path / "stat", "cpu 1\nnonsense\n")
    stat = ProcStat(cores=(0,), tree=ProcessTree(proc=tmp_path, pid=1), proc=tmp_path)
    stat.read(0.0)
    assert all(metric.value is None for metric in stat.read(1.0).values())
    absent = ProcStat(cores=(0,), tree=ProcessTree(proc=tmp_path, pid=1), proc=tmp_path / "none")
    assert {row.source for row in absent.describe()} == {"unavailable"}
    assert "No such file" in absent.describe()[0].origin
    check_counters(absent)


def others_over(stat: ProcStat, seconds: float) -> dict[int, float]:
    """By core."""
    stat.read(time.monotonic())
    time.sleep(seconds)
    readings = stat.read(time.monotonic())
    cores = os.sched_getaffinity(0)
    return {core: readings[f"core.{core}.others_share"].value or 0.0 for core in cores}


def test_a_neighbour_on_a_core_is_seen_and_seen_to_go() -> None:
    tree = ProcessTree()
    stat = ProcStat(cores=sorted(os.sched_getaffinity(0)), tree=tree)
    for _ in range(3):
        before = others_over(stat, 0.3)
        core = min(before, key=lambda core: before[core])
        with neighbour(core):
            during = others_over(stat, 0.5)[core]
        quiet = max(before[core], others_over(stat, 0.3)[core])
        assert during > 0.8
        if quiet < 0.5:
            assert during > quiet + 0.2
            break
    else:
        pytest.skip(f"no core is quiet here: others have {quiet:.2f} of core {core}")
    tree.close()


def test_our_own_work_is_busy_but_not_others() -> None:
    core = min(os.sched_getaffinity(0))
    tree = ProcessTree()
    stat = ProcStat(cores=(core,), tree=tree)
    with busy_thread(core):
        stat.read(time.monotonic())
        time.sleep(0.5)
        readings = stat.read(time.monotonic())
    tree.close()
    busy, others = (readings[f"core.{core}.{name}_share"].value for name in ("busy", "others"))
    assert busy is not None
    assert others is not None
    assert busy > 0.8
    assert others < busy - 0.15, "a neighbour may share the core, but not have all of it"
