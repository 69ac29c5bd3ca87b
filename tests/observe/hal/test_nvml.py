import sys
from types import SimpleNamespace
from typing import Any

import pytest

from gearshift.observe.hal import check_counters
from gearshift.observe.hal.nvml import Nvml


class FakeError(Exception):
    pass


class FakeLibrary:
    NVMLError = FakeError
    NVML_CLOCK_SM = 1

    def __init__(self, *, devices: int = 1, energy: bool = True, driver: bool = True) -> None:
        self.devices, self.energy, self.driver = devices, energy, driver
        self.energy_mj, self.open = 5_000_000, False

    def nvmlInit(self) -> None:
        if not self.driver:
            raise FakeError("Driver Not Loaded")
        self.open = True

    def nvmlShutdown(self) -> None:
        assert self.open
        self.open = False

    def nvmlDeviceGetCount(self) -> int:
        return self.devices

    def nvmlDeviceGetHandleByIndex(self, index: int) -> int:
        return index

    def nvmlDeviceGetTotalEnergyConsumption(self, handle: int) -> int:
        if not self.energy:
            raise FakeError("Not Supported")
        return self.energy_mj

    def nvmlDeviceGetPowerUsage(self, handle: int) -> int:
        return 70_000

    def nvmlDeviceGetUtilizationRates(self, handle: int) -> Any:
        return SimpleNamespace(gpu=40)

    def nvmlDeviceGetClockInfo(self, handle: int, kind: int) -> int:
        return 1500


def test_a_device_tells_load_clock_power_and_energy() -> None:
    library = FakeLibrary(devices=2)
    nvml = Nvml(library=library)
    nvml.read(0.0)
    library.energy_mj += 90_000
    values = {name: metric.value for name, metric in nvml.read(1.0).items()}
    assert values["gpu.1.energy_j"] == pytest.approx(90.0)
    assert values["gpu.0.power_w"] == pytest.approx(70.0)
    assert values["gpu.0.busy_share"] == pytest.approx(0.4)
    assert values["gpu.0.clock_hz"] == 1.5e9
    check_counters(nvml, now_s=2.0)
    assert not library.open


def test_an_old_device_has_no_energy_counter() -> None:
    nvml = Nvml(library=FakeLibrary(energy=False))
    nvml.read(0.0)
    readings = nvml.read(1.0)
    assert readings["gpu.0.energy_j"].value is None
    assert readings["gpu.0.power_w"].value == pytest.approx(70.0)


@pytest.mark.parametrize(
    ("library", "reason"),
    [
        (FakeLibrary(devices=0), "no device"),
        (FakeLibrary(driver=False), "Driver Not Loaded"),
    ],
)
def test_without_a_device_the_reason_is_told(library: FakeLibrary, reason: str) -> None:
    nvml = Nvml(library=library)
    assert reason in nvml.describe()[0].origin
    check_counters(nvml)


def test_without_the_library_the_reason_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pynvml", None)
    nvml = Nvml()
    assert "not installed" in nvml.describe()[0].origin
    check_counters(nvml)
