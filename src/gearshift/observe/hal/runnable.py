"""How many threads on this machine run or are ready to, at the moment of the read.

Must not know whose they are.
"""

from pathlib import Path

from gearshift.ir.measurement import Source
from gearshift.observe.hal.counters import Description, Readings, Unit, measured, nothing
from gearshift.observe.hal.kernel_file import PROC, KernelFile

NAME = "cpu.runnable"


class Runnable:
    """The thread that reads is one of them."""

    def __init__(self, *, proc: Path = PROC) -> None:
        self._file = KernelFile(proc / "loadavg")

    def describe(self) -> tuple[Description, ...]:
        reason = self._file.reason
        source = Source.UNAVAILABLE if reason else Source.MEASURED
        origin = reason or "/proc/loadavg, at this moment"
        return (Description(name=NAME, unit=Unit.CORES, source=source, origin=origin),)

    def read(self, now_s: float) -> Readings:
        text = self._file.read(64)
        fields = (text or b"").split()
        if len(fields) < 4 or not fields[3].partition(b"/")[0].isdigit():
            return nothing([NAME])
        return {NAME: measured(float(fields[3].partition(b"/")[0]))}

    def close(self) -> None:
        self._file.close()
