import time
from pathlib import Path

import pytest

from gearshift.observe.hal import check_counters
from gearshift.observe.hal.energy import BUSY_CORE_W, IDLE_CORE_W, CpuTimeEnergy, Rapl, open_energy
from tests.observe.hal.machines import write, write_rapl


def test_rapl_sums_packages_and_memory_but_counts_nothing_twice(tmp_path: Path) -> None:
    write_rapl(tmp_path, "intel-rapl:0", "package-0", 1_000_000)
    write_rapl(tmp_path, "intel-rapl:0:0", "core", 500_000)
    write_rapl(tmp_path, "intel-rapl:0:1", "dram", 100_000)
    write_rapl(tmp_path, "intel-rapl:1", "psys", 9_000_000)
    rapl = open_energy(num_cores=2, cpu_s=time.process_time, sys=tmp_path)
    assert isinstance(rapl, Rapl)
    assert rapl.read(0.0)["energy.cpu_j"].value is None
    write_rapl(tmp_path, "intel-rapl:0", "package-0", 21_000_000)
    write_rapl(tmp_path, "intel-rapl:0:0", "core", 15_000_000)
    write_rapl(tmp_path, "intel-rapl:0:1", "dram", 4_100_000)
    readings = rapl.read(2.0)
    assert readings["energy.cpu_j"].value == pytest.approx(24.0)
    assert readings["energy.cpu_w"].value == pytest.approx(12.0)
    assert readings["energy.cpu_w"].source == "measured"
    assert rapl.describe()[0].origin == "RAPL: package-0, dram"
    check_counters(rapl, now_s=3.0)


def test_a_full_counter_starts_again_and_the_energy_does_not(tmp_path: Path) -> None:
    write_rapl(tmp_path, "intel-rapl:0", "package-0", 9_000_000, full_uj=10_000_000)
    rapl = Rapl(sys=tmp_path)
    rapl.read(0.0)
    write_rapl(tmp_path, "intel-rapl:0", "package-0", 2_000_000, full_uj=10_000_000)
    assert rapl.read(1.0)["energy.cpu_j"].value == pytest.approx(3.0)


def test_a_domain_that_holds_no_number_is_unavailable(tmp_path: Path) -> None:
    write_rapl(tmp_path, "intel-rapl:0", "package-0", 1)
    write(tmp_path / "class/powercap/intel-rapl:0/energy_uj", "broken")
    rapl = Rapl(sys=tmp_path)
    rapl.read(0.0)
    assert rapl.read(1.0)["energy.cpu_j"].value is None


def test_without_rapl_cpu_time_is_turned_into_energy_and_says_so(tmp_path: Path) -> None:
    used_s = [10.0]
    energy = open_energy(num_cores=4, cpu_s=lambda: used_s[0], sys=tmp_path)
    assert isinstance(energy, CpuTimeEnergy)
    energy.read(0.0)
    used_s[0] = 13.0
    reading = energy.read(2.0)["energy.cpu_j"]
    assert reading.value == pytest.approx(3.0 * BUSY_CORE_W + 2.0 * 4 * IDLE_CORE_W)
    assert reading.source == "modelled"
    origin = energy.describe()[0].origin
    assert f"{BUSY_CORE_W} W" in origin
    assert "no RAPL domain" in origin
    check_counters(energy, now_s=3.0)


def test_more_work_costs_more_energy_on_this_machine() -> None:
    energy = CpuTimeEnergy(num_cores=1, cpu_s=time.process_time, because="a test")

    def power_w(seconds_of_work: float) -> float:
        energy.read(time.monotonic())
        end_s = time.process_time() + seconds_of_work
        while time.process_time() < end_s:
            pass
        time.sleep(0.05)
        return energy.read(time.monotonic())["energy.cpu_w"].value or 0.0

    assert power_w(0.1) > power_w(0.0) + 0.1
