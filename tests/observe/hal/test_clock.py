from pathlib import Path

from gearshift.observe.hal import check_counters
from gearshift.observe.hal.clock import CpuFreq, CpuInfo, clocks_hz
from tests.observe.hal.machines import write, write_clock

CPUINFO = """processor\t: 0
flags\t\t: fpu {flags} lm
cpu MHz\t\t: 2400.5

processor\t: 3
cpu MHz\t\t: 3100.0
"""


def test_cpufreq_tells_the_clock_of_each_core(tmp_path: Path) -> None:
    write_clock(tmp_path, 0, 2_000_000)
    clock = CpuFreq(cores=(0, 1), sys=tmp_path)
    write_clock(tmp_path, 0, 3_500_000)
    readings = clock.read(0.0)
    assert readings["core.0.clock_hz"].value == 3.5e9
    assert readings["core.1.clock_hz"].value is None
    check_counters(clock)


def test_cpuinfo_is_measured_only_where_the_cpu_counts_its_cycles(tmp_path: Path) -> None:
    write(tmp_path / "cpuinfo", CPUINFO.format(flags="aperfmperf"))
    real = CpuInfo(cores=(0, 3, 5), proc=tmp_path)
    readings = real.read(0.0)
    assert (readings["core.0.clock_hz"].value, readings["core.0.clock_hz"].source) == (
        2400.5e6,
        "measured",
    )
    assert readings["core.3.clock_hz"].value == 3.1e9
    assert readings["core.5.clock_hz"].value is None
    check_counters(real)
    write(tmp_path / "cpuinfo", CPUINFO.format(flags="avx2"))
    nominal = CpuInfo(cores=(0,), proc=tmp_path)
    assert nominal.read(0.0)["core.0.clock_hz"].source == "modelled"
    assert "nominal" in nominal.describe()[0].origin


def test_this_machine_and_one_without() -> None:
    for counters in (CpuFreq(cores=(0,)), CpuInfo(cores=(0,))):
        check_counters(counters)
    for counters in (CpuFreq(cores=(0,), sys=Path("/no")), CpuInfo(cores=(0,), proc=Path("/no"))):
        assert counters.describe()[0].source == "unavailable"
        check_counters(counters)
    assert clocks_hz(b"garbage\nprocessor\t: 0\ncpu MHz\t\t: Unknown\n") == {}
