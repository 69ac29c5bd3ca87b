import os
import threading
import time
from pathlib import Path

import pytest

from gearshift.ir.measurement import Metric
from gearshift.observe.hal import check_counters
from gearshift.observe.hal.process_tree import ProcessTree
from gearshift.observe.hal.schedstat import ProcessDelay, ThreadDelay
from tests.observe.hal.machines import write_task
from tests.observe.hal.neighbours import busy_thread, neighbour

NAME = "thread.worker.run_delay_share"


def over(counters: ThreadDelay, seconds: float) -> Metric:
    counters.read(time.monotonic())
    time.sleep(seconds)
    return counters.read(time.monotonic())[NAME]


def settled(counters: ThreadDelay) -> Metric:
    """As soon as there is nothing to tell, or after two seconds."""
    end_s = time.monotonic() + 2
    while (metric := over(counters, 0.05)).value is not None and time.monotonic() < end_s:
        pass
    return metric


def test_a_thread_waits_while_another_process_wants_its_core() -> None:
    core = max(os.sched_getaffinity(0))
    counters = ThreadDelay()
    with busy_thread(core) as worker:
        counters.watch("worker", worker.thread.native_id or 0)
        with neighbour(core):
            shared = over(counters, 0.5).value
        worker.idle.set()
        without_work = settled(counters)
    gone = settled(counters)
    assert shared is not None
    assert shared > 0.25
    assert without_work.value is None, "a thread without work has no run delay"
    assert gone.value is None
    assert "No such process" in counters.describe()[0].origin
    check_counters(counters)


def test_watching_can_be_ended() -> None:
    counters = ThreadDelay()
    counters.watch("a", threading.get_native_id())
    counters.watch("a", threading.get_native_id())
    counters.watch("b", 999_999_999)
    assert [row.source for row in counters.describe()] == ["measured", "unavailable"]
    counters.forget("a")
    counters.forget("never watched")
    assert list(counters.read(0.0)) == ["thread.b.run_delay_share"]


def test_all_threads_together(tmp_path: Path) -> None:
    write_task(tmp_path, 1, 1, run_s=1.0, delay_s=1.0)
    write_task(tmp_path, 1, 2, run_s=1.0, delay_s=1.0)
    counters = ProcessDelay(tree=ProcessTree(proc=tmp_path, pid=1))
    assert counters.read(0.0)["process.run_delay_share"].value is None
    write_task(tmp_path, 1, 1, run_s=1.6, delay_s=1.1)
    write_task(tmp_path, 1, 2, run_s=1.0, delay_s=1.1)
    readings = counters.read(0.5)
    assert readings["process.run_delay_share"].value == pytest.approx(0.25)
    assert readings["process.busy_cores"].value == pytest.approx(1.2)
    check_counters(counters, now_s=1.0)


def test_a_busy_thread_nobody_named_is_in_the_sum() -> None:
    counters = ProcessDelay(tree=ProcessTree())
    counters.read(time.monotonic())
    with busy_thread(min(os.sched_getaffinity(0))):
        time.sleep(0.3)
        busy = counters.read(time.monotonic())["process.busy_cores"].value
    counters.close()
    assert busy is not None
    assert busy > 0.2
