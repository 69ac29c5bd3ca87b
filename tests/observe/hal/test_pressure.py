from pathlib import Path

import pytest

from gearshift.observe.hal import check_counters
from gearshift.observe.hal.pressure import NAME, Pressure
from tests.observe.hal.machines import write, write_pressure


def test_the_share_of_the_interval_in_which_somebody_waited(tmp_path: Path) -> None:
    write_pressure(tmp_path, 1_000_000)
    pressure = Pressure(proc=tmp_path)
    assert pressure.read(10.0)[NAME].value is None
    write_pressure(tmp_path, 1_500_000)
    assert pressure.read(12.0)[NAME].value == pytest.approx(0.25)
    write_pressure(tmp_path, 9_500_000)
    assert pressure.read(13.0)[NAME].value == 1.0
    check_counters(pressure, now_s=14.0)


@pytest.mark.parametrize("text", ["", "some\n", "full avg10=0 total=3\n", "some total=x\n"])
def test_a_broken_file_is_unavailable(tmp_path: Path, text: str) -> None:
    write(tmp_path / "pressure" / "cpu", text)
    pressure = Pressure(proc=tmp_path)
    pressure.read(0.0)
    assert pressure.read(1.0)[NAME].value is None


def test_this_machine_and_one_without() -> None:
    check_counters(Pressure())
    without = Pressure(proc=Path("/nowhere"))
    assert "No such file" in without.describe()[0].origin
    check_counters(without)
