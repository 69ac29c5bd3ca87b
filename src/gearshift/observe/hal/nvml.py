"""NVIDIA devices through nvidia-ml-py, where it is installed and finds one.

Must not know torch; a device is here by its number in NVML.
"""

import importlib
from collections.abc import Callable
from typing import Any

from gearshift.ir.measurement import Source
from gearshift.observe.hal.counters import Description, Readings, Unit, measured
from gearshift.observe.hal.growth import Growth

UNITS = {
    "busy_share": Unit.SHARE,
    "clock_hz": Unit.HZ,
    "energy_j": Unit.JOULES,
    "power_w": Unit.WATTS,
}
PERCENT, MHZ, MILLI = 0.01, 1e6, 1e-3


class Nvml:
    """`library` is the module pynvml, or one that behaves like it."""

    def __init__(self, *, library: Any = None) -> None:
        self._devices: list[_Device] = []
        self._library = library
        self.reason = ""
        try:
            self._library = library or importlib.import_module("pynvml")
        except ImportError:
            self.reason = "pynvml is not installed (pip install nvidia-ml-py)"
            return
        self._find_devices(self._library)

    def describe(self) -> tuple[Description, ...]:
        source = Source.MEASURED if self._devices else Source.UNAVAILABLE
        return tuple(
            Description(
                name=f"gpu.{index}.{key}",
                unit=unit,
                source=source,
                origin=self.reason or f"NVML, device {index}",
            )
            for index in range(len(self._devices) or 1)
            for key, unit in UNITS.items()
        )

    def read(self, now_s: float) -> Readings:
        if not self._devices:
            return {f"gpu.0.{key}": measured(None) for key in UNITS}
        return {
            f"gpu.{index}.{key}": measured(value)
            for index, device in enumerate(self._devices)
            for key, value in device.read(now_s).items()
        }

    def close(self) -> None:
        if self._devices and self._library is not None:
            self._devices, self.reason = [], "closed"
            self._library.nvmlShutdown()

    def _find_devices(self, library: Any) -> None:
        try:
            library.nvmlInit()
            count = library.nvmlDeviceGetCount()
            self._devices = [_Device(library, index) for index in range(count)]
        except library.NVMLError as error:
            self.reason = f"NVML: {error}"
            return
        if not count:
            self.reason = "NVML finds no device"


class _Device:
    def __init__(self, library: Any, index: int) -> None:
        self._library = library
        self._handle = library.nvmlDeviceGetHandleByIndex(index)
        self._energy = Growth()

    def read(self, now_s: float) -> dict[str, float | None]:
        library, handle = self._library, self._handle
        energy_mj = self._ask(lambda: library.nvmlDeviceGetTotalEnergyConsumption(handle))
        power_mw = self._ask(lambda: library.nvmlDeviceGetPowerUsage(handle))
        busy = self._ask(lambda: library.nvmlDeviceGetUtilizationRates(handle).gpu)
        clock = self._ask(lambda: library.nvmlDeviceGetClockInfo(handle, library.NVML_CLOCK_SM))
        step = self._energy.since_last(now_s, energy_mj)
        return {
            "busy_share": _scaled(busy, PERCENT),
            "clock_hz": _scaled(clock, MHZ),
            "energy_j": None if step is None else step[1] * MILLI,
            "power_w": _scaled(power_mw, MILLI),
        }

    def _ask(self, question: Callable[[], Any]) -> float | None:
        """Older devices do not answer every question."""
        try:
            return float(question())
        except self._library.NVMLError:
            return None


def _scaled(value: float | None, scale: float) -> float | None:
    return None if value is None else value * scale
