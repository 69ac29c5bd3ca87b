import threading
import time
from pathlib import Path

import pytest

from gearshift.ir.measurement import Source
from gearshift.ir.work import Work
from gearshift.observe.hal import NullCounters, measure_roofline, open_hal
from gearshift.observe.hal.counters import measured, modelled
from tests.observe.hal import machines

ASKED = {
    "cpu.busy_share",
    "cpu.others_share",
    "cpu.stolen_share",
    "process.run_delay_share",
    "memory.dram_bytes_s",
    "cache.l1_hit_share",
    "cache.l2_hit_share",
    "cache.l3_hit_share",
    "core.0.clock_hz",
    "energy.cpu_j",
}


@pytest.mark.capability("core.hal")
def test_this_machine_tells_what_it_has_and_why_it_lacks_the_rest() -> None:
    hal = open_hal(cores=(0,), roofline=measure_roofline(num_threads=1))
    hal.watch_thread("main", threading.get_native_id())
    hal.read()
    hal.note(Work(flops=1e6, moved_bytes=1e8, set_bytes=1e8, seconds=0.02))
    time.sleep(0.1)
    readings, rows = hal.read(), {row.name: row for row in hal.describe()}
    hal.close()
    assert readings.keys() == rows.keys() >= ASKED
    for name, metric in readings.items():
        assert metric.source in {rows[name].source, Source.UNAVAILABLE}
        assert rows[name].origin
    for name in ("cpu.busy_share", "cache.l3_hit_share", "memory.dram_bytes_s", "energy.cpu_j"):
        assert readings[name].value is not None
    assert all(metric.value is None for metric in hal.read().values())


def test_a_machine_with_everything(tmp_path: Path) -> None:
    proc, sys = tmp_path / "proc", tmp_path / "sys"
    machines.write_stat(proc, {0: 0, 1: 0, 2: 0}, {0: 100, 1: 100, 2: 100})
    machines.write_task(proc, 1, 1, run_s=0.0)
    machines.write_pressure(proc, 0)
    machines.write_rapl(sys, "intel-rapl:0", "package-0", 0)
    for core in range(3):
        machines.write_clock(sys, core, 3_000_000)
    now_s = [0.0]
    hal = open_hal(cores=(0, 1, 2), proc=proc, sys=sys, pid=1, clock=lambda: now_s[0])
    hal.read()
    now_s[0] = 1.0
    machines.write_stat(proc, {0: 75, 1: 0, 2: 25}, {0: 100, 1: 175, 2: 150}, stolen=25)
    machines.write_rapl(sys, "intel-rapl:0", "package-0", 30_000_000)
    values = {name: metric.value for name, metric in hal.read().items()}
    assert values["core.0.others_share"] == pytest.approx(0.75)
    assert values["core.2.others_share"] == pytest.approx(0.25)
    assert values["cpu.others_share"] == pytest.approx(1 / 3)
    assert values["cpu.stolen_share"] == pytest.approx(0.25)
    assert values["energy.cpu_w"] == pytest.approx(30.0)
    assert values["core.1.clock_hz"] == 3e9
    hal.close()


def test_a_machine_with_nothing_says_so_and_still_models_energy(tmp_path: Path) -> None:
    hal = open_hal(cores=(0,), proc=tmp_path, sys=tmp_path)
    hal.read()
    readings = hal.read()
    from_files = ("core.", "cpu.", "pressure.", "energy.", "process.run", "process.busy")
    told = {n for n, m in readings.items() if n.startswith(from_files) and m.value is not None}
    assert told == {"energy.cpu_j", "energy.cpu_w"}
    reasons = {row.name: row.origin for row in hal.describe()}
    assert "No such file" in reasons["core.0.clock_hz"]
    assert "no such file" in reasons["process.run_delay_share"]
    hal.close()


def test_a_source_of_ones_own_comes_first_and_others_fill_in(tmp_path: Path) -> None:
    mine = NullCounters({"energy.cpu_w": measured(7.0), "rack.heat": modelled(0.5)})
    hal = open_hal(cores=(0,), extra=[mine], proc=tmp_path, sys=tmp_path)
    hal.read()
    readings = hal.read()
    assert readings["energy.cpu_w"] == measured(7.0)
    assert readings["rack.heat"] == modelled(0.5)
    assert readings["energy.cpu_j"].source == "modelled"


def test_the_wall_clock_may_jump_an_hour(monkeypatch: pytest.MonkeyPatch) -> None:
    hal = open_hal(cores=(0,))
    hal.read()
    jumped_s = time.time() + 3600
    monkeypatch.setattr(time, "time", lambda: jumped_s)
    monkeypatch.setattr(time, "time_ns", lambda: int(jumped_s * 1e9))
    time.sleep(0.1)
    power_w = hal.read()["energy.cpu_w"].value
    hal.close()
    assert power_w is not None
    assert power_w < 1000


def test_reading_states_its_own_cost() -> None:
    hal = open_hal()
    for _ in range(20):
        hal.read()
        time.sleep(0.005)
    assert hal.num_reads == 20
    assert 0 < hal.cost_s < 20 * 0.02
    hal.close()


def test_threads_may_be_watched_and_work_noted_while_another_thread_reads() -> None:
    hal = open_hal(cores=(0,), roofline=None)
    end = threading.Event()
    errors: list[Exception] = []

    def read() -> None:
        try:
            while not end.is_set():
                hal.read()
                hal.describe()
        except Exception as error:
            errors.append(error)

    reader = threading.Thread(target=read)
    reader.start()
    for number in range(100):
        hal.watch_thread(f"t{number % 7}", threading.get_native_id())
        hal.note(Work(flops=1.0, moved_bytes=1.0, set_bytes=1.0, seconds=1.0))
        hal.forget_thread(f"t{(number + 3) % 7}")
    hal.close()
    end.set()
    reader.join()
    assert not errors
