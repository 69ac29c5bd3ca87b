"""The clock of each core: as cpufreq tells it, else as /proc/cpuinfo does.

Must not know what the cores do. Without the aperfmperf flag, cpuinfo holds the nominal clock, which
is a model of the real one.
"""

from collections.abc import Sequence
from pathlib import Path

from gearshift.ir.measurement import Source
from gearshift.observe.hal.counters import (
    Description,
    Readings,
    Unit,
    measured,
    modelled,
    nothing,
)
from gearshift.observe.hal.kernel_file import PROC, SYS, KernelFile

CPUINFO_EVERY_S = 1.0
"""Reading cpuinfo may interrupt every core; a clock this old is still good."""


class CpuFreq:
    def __init__(self, *, cores: Sequence[int], sys: Path = SYS) -> None:
        folder = sys / "devices" / "system" / "cpu"
        self._files = {
            f"core.{core}.clock_hz": KernelFile(folder / f"cpu{core}/cpufreq/scaling_cur_freq")
            for core in cores
        }

    def describe(self) -> tuple[Description, ...]:
        return tuple(
            Description(
                name=name,
                unit=Unit.HZ,
                source=Source.MEASURED if file.readable else Source.UNAVAILABLE,
                origin=file.reason or "cpufreq scaling_cur_freq",
            )
            for name, file in self._files.items()
        )

    def read(self, now_s: float) -> Readings:
        khz = {name: file.number() for name, file in self._files.items()}
        return {name: measured(None if k is None else k * 1e3) for name, k in khz.items()}

    def close(self) -> None:
        for file in self._files.values():
            file.close()


class CpuInfo:
    def __init__(self, *, cores: Sequence[int], proc: Path = PROC) -> None:
        self._file = KernelFile(proc / "cpuinfo")
        self._names = {core: f"core.{core}.clock_hz" for core in cores}
        text = self._file.read_all()
        self._real = b" aperfmperf" in text
        self._told = clocks_hz(text).keys() & set(cores)
        self._last: Readings = {}
        self._read_s = 0.0

    def describe(self) -> tuple[Description, ...]:
        return tuple(self._describe(core) for core in self._names)

    def read(self, now_s: float) -> Readings:
        if not self._file.readable:
            return nothing(self._names.values())
        if not self._last or (self._real and now_s - self._read_s >= CPUINFO_EVERY_S):
            clocks = clocks_hz(self._file.read_all())
            label = measured if self._real else modelled
            self._last = {name: label(clocks.get(core)) for core, name in self._names.items()}
            self._read_s = now_s
        return dict(self._last)

    def close(self) -> None:
        self._file.close()

    def _describe(self, core: int) -> Description:
        source = Source.MEASURED if self._real else Source.MODELLED
        origin = "/proc/cpuinfo MHz" + ("" if self._real else ": the nominal clock")
        if not self._file.readable or core not in self._told:
            source = Source.UNAVAILABLE
            origin = self._file.reason or "/proc/cpuinfo tells no MHz for this core"
        return Description(name=self._names[core], unit=Unit.HZ, source=source, origin=origin)


def clocks_hz(text: bytes) -> dict[int, float]:
    """By core."""
    clocks: dict[int, float] = {}
    core = -1
    for line in text.decode(errors="replace").splitlines():
        key, _, value = (part.strip() for part in line.partition(":"))
        if key == "processor" and value.isdigit():
            core = int(value)
        elif key == "cpu MHz" and value != "Unknown":
            clocks[core] = float(value) * 1e6
    return clocks
