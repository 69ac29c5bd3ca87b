"""The share of time in which some thread on this machine was ready and had no core.

Must not know which thread or which core; the kernel does not tell.
"""

from pathlib import Path

from gearshift.ir.measurement import Source
from gearshift.observe.hal.counters import Description, Readings, Unit, measured
from gearshift.observe.hal.growth import Growth
from gearshift.observe.hal.kernel_file import PROC, KernelFile

NAME = "pressure.cpu_share"


class Pressure:
    def __init__(self, *, proc: Path = PROC) -> None:
        self._file = KernelFile(proc / "pressure" / "cpu")
        self._growth = Growth()

    def describe(self) -> tuple[Description, ...]:
        source = Source.MEASURED if self._file.readable else Source.UNAVAILABLE
        origin = self._file.reason or "/proc/pressure/cpu, total of `some`"
        return (Description(name=NAME, unit=Unit.SHARE, source=source, origin=origin),)

    def read(self, now_s: float) -> Readings:
        stalled = self._growth.per_s(now_s, stalled_s(self._file.read(256)))
        return {NAME: measured(None if stalled is None else min(1.0, stalled))}

    def close(self) -> None:
        self._file.close()


def stalled_s(text: bytes | None) -> float | None:
    """Seconds since boot in which some thread waited."""
    line = (text or b"").partition(b"\n")[0]
    total = line.rpartition(b" total=")[2]
    return int(total) * 1e-6 if line.startswith(b"some ") and total.isdigit() else None
