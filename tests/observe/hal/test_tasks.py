import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from gearshift.observe.hal.process_tree import ProcessTree
from gearshift.observe.hal.tasks import TURN, Tasks
from tests.observe.hal.machines import write, write_task


def test_times_are_summed_by_the_core_a_thread_ran_on(tmp_path: Path) -> None:
    write_task(tmp_path, 1, 1, run_s=5.0, core=0)
    write_task(tmp_path, 1, 2, run_s=9.0, core=1)
    tasks = Tasks(tmp_path / "1" / "task")
    tasks.sample(0.0)
    assert tasks.totals.run_s == 0.0
    write_task(tmp_path, 1, 1, run_s=5.5, delay_s=0.25, core=1)
    write_task(tmp_path, 1, 2, run_s=9.25, core=1)
    tasks.sample(0.5)
    assert tasks.totals.run_s == pytest.approx(0.75)
    assert tasks.totals.delay_s == pytest.approx(0.25)
    assert tasks.totals.core_run_s == pytest.approx({1: 0.75})


def test_a_new_thread_counts_from_its_birth_but_not_from_before_the_last_look(
    tmp_path: Path,
) -> None:
    write_task(tmp_path, 1, 1, run_s=5.0)
    tasks = Tasks(tmp_path / "1" / "task")
    tasks.sample(0.0)
    write_task(tmp_path, 1, 2, run_s=0.5)
    write_task(tmp_path, 1, 3, run_s=100.0)
    tasks.sample(2.0)
    assert tasks.totals.run_s == pytest.approx(0.5 + 2.0)


def test_with_many_threads_they_take_turns_and_no_time_is_lost(tmp_path: Path) -> None:
    many = 2 * TURN
    for tid in range(1, many + 1):
        write_task(tmp_path, 1, tid, run_s=1.0)
    tasks = Tasks(tmp_path / "1" / "task")
    tasks.sample(0.0)
    for tid in range(1, many + 1):
        write_task(tmp_path, 1, tid, run_s=1.5)
    tasks.sample(0.1)
    assert tasks.totals.run_s < many * 0.5
    tasks.sample(0.2)
    tasks.sample(0.3)
    assert tasks.totals.run_s == pytest.approx(many * 0.5)
    tasks.close()


def test_real_threads_come_and_go() -> None:
    tree = ProcessTree()
    tree.sample(time.monotonic())
    stop = threading.Event()
    threads = [threading.Thread(target=stop.wait) for _ in range(4)]
    for thread in threads:
        thread.start()
    tree.sample(time.monotonic())
    ids = {str(thread.native_id) for thread in threads}
    assert ids <= set(tree.own.ids)
    stop.set()
    for thread in threads:
        thread.join()
    deadline_s = time.monotonic() + 5
    while ids & set(tree.own.ids) and time.monotonic() < deadline_s:
        tree.sample(time.monotonic())
        time.sleep(0.01)
    assert not ids & set(tree.own.ids)
    tree.close()


def test_a_child_process_and_its_children_belong_to_the_tree(tmp_path: Path) -> None:
    write_task(tmp_path, 1, 1, run_s=1.0)
    tree = ProcessTree(proc=tmp_path, pid=1)
    tree.sample(0.0)
    write(tmp_path / "1/task/1/children", "20 ")
    write_task(tmp_path, 20, 20, run_s=0.25, core=1)
    write(tmp_path / "20/task/20/children", "21 ")
    write_task(tmp_path, 21, 21, run_s=0.5, core=1)
    tree.sample(1.0)
    assert tree.totals.core_run_s == pytest.approx({1: 0.75})
    assert tree.own.totals.run_s == 0.0
    tree.close()


def test_a_real_busy_child_is_ours_and_still_counted_when_it_has_ended() -> None:
    tree = ProcessTree()
    tree.sample(time.monotonic())
    burn = "import time\nwhile time.process_time() < 0.3: pass\nprint()\ninput()"
    with subprocess.Popen(
        [sys.executable, "-c", burn], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as child:
        assert child.stdout is not None
        child.stdout.readline()
        tree.sample(time.monotonic() + 1)
        tree.sample(time.monotonic() + 2)
        both_s = tree.totals.run_s
        assert both_s - tree.own.totals.run_s >= 0.2
        child.communicate(b"\n")
    tree.sample(time.monotonic() + 4)
    tree.sample(time.monotonic() + 6)
    assert tree.totals.run_s >= both_s
    tree.close()


def test_without_proc_the_reason_is_told(tmp_path: Path) -> None:
    tree = ProcessTree(proc=tmp_path)
    tree.sample(0.0)
    assert not tree.readable
    assert "schedstat" in tree.reason
