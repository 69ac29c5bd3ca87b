"""Energy of the CPU: from RAPL where it can be read, else a model of the CPU time we use.

Must not know what the energy was spent on.
"""

from collections.abc import Callable
from pathlib import Path

from gearshift.ir.measurement import Source
from gearshift.observe.hal.counters import (
    Counters,
    Description,
    Readings,
    Unit,
    measured,
    modelled,
    nothing,
)
from gearshift.observe.hal.growth import Growth
from gearshift.observe.hal.kernel_file import SYS, KernelFile

BUSY_CORE_W = 5.0
"""A core of a server CPU under load: 200 to 300 W over 40 to 64 cores."""

IDLE_CORE_W = 0.5
"""Its share of what the package draws while nothing runs."""

ENERGY, POWER = "energy.cpu_j", "energy.cpu_w"
NAMES = (ENERGY, POWER)


def open_energy(*, num_cores: int, cpu_s: Callable[[], float], sys: Path = SYS) -> Counters:
    """`cpu_s` tells the CPU seconds we have used so far."""
    rapl = Rapl(sys=sys)
    if rapl.readable:
        return rapl
    rapl.close()
    return CpuTimeEnergy(num_cores=num_cores, cpu_s=cpu_s, because=rapl.reason)


class Rapl:
    """All packages and their memory; what else the machine holds is not in it."""

    def __init__(self, *, sys: Path = SYS) -> None:
        folder = sys / "class" / "powercap"
        self._domains: list[_Domain] = []
        self.reason = f"{folder}: no RAPL domain"
        for path in sorted(folder.glob("intel-rapl:*")):
            self._add(path)
        self._energy = Growth()

    @property
    def readable(self) -> bool:
        return bool(self._domains)

    def describe(self) -> tuple[Description, ...]:
        origin = "RAPL: " + ", ".join(domain.name for domain in self._domains)
        source = Source.MEASURED if self.readable else Source.UNAVAILABLE
        return _descriptions(source, origin if self.readable else self.reason)

    def read(self, now_s: float) -> Readings:
        parts = [domain.total_j() for domain in self._domains]
        known = [part for part in parts if part is not None]
        total = sum(known) if known and len(known) == len(parts) else None
        step = self._energy.since_last(now_s, total)
        if step is None:
            return nothing(NAMES)
        return {ENERGY: measured(step[1]), POWER: measured(step[1] / step[0])}

    def close(self) -> None:
        for domain in self._domains:
            domain.file.close()
        self._domains = []

    def _add(self, path: Path) -> None:
        """`psys` is left out because it holds the packages, `core` and `uncore` are in them."""
        name_file = path / "name"
        name = name_file.read_text().strip() if name_file.is_file() else ""
        if not name.startswith(("package", "dram")):
            return
        domain = _Domain(name, path)
        if domain.file.readable:
            self._domains.append(domain)
        else:
            self.reason = domain.file.reason


class _Domain:
    """A counter that starts again at 0 when it is full; the total does not."""

    __slots__ = ("_full_uj", "_last_uj", "_total_uj", "file", "name")

    def __init__(self, name: str, path: Path) -> None:
        self.name, self.file = name, KernelFile(path / "energy_uj")
        full = KernelFile(path / "max_energy_range_uj")
        self._full_uj = full.number() or 0
        full.close()
        self._last_uj, self._total_uj = self.file.number(), 0

    def total_j(self) -> float | None:
        now_uj, last_uj = self.file.number(), self._last_uj
        if now_uj is None or last_uj is None:
            return None
        grown_uj = now_uj - last_uj
        self._total_uj += grown_uj if grown_uj >= 0 else grown_uj + self._full_uj
        self._last_uj = now_uj
        return self._total_uj * 1e-6


class CpuTimeEnergy:
    def __init__(self, *, num_cores: int, cpu_s: Callable[[], float], because: str) -> None:
        self._idle_w = IDLE_CORE_W * num_cores
        self._cpu_s: Callable[[], float] | None = cpu_s
        self._because = because
        self._cpu = Growth()

    def describe(self) -> tuple[Description, ...]:
        source = Source.MODELLED if self._cpu_s else Source.UNAVAILABLE
        origin = (
            f"{BUSY_CORE_W} W for each of our CPU seconds and {self._idle_w} W idle"
            f" (typical of servers); not measured: {self._because}"
        )
        return _descriptions(source, origin)

    def read(self, now_s: float) -> Readings:
        step = self._cpu.since_last(now_s, self._cpu_s() if self._cpu_s else None)
        if step is None:
            return nothing(NAMES)
        seconds, cpu_s = step
        energy_j = cpu_s * BUSY_CORE_W + seconds * self._idle_w
        return {ENERGY: modelled(energy_j), POWER: modelled(energy_j / seconds)}

    def close(self) -> None:
        self._cpu_s = None


def _descriptions(source: Source, origin: str) -> tuple[Description, ...]:
    units = (Unit.JOULES, Unit.WATTS)
    return tuple(
        Description(name=name, unit=unit, source=source, origin=origin)
        for name, unit in zip(NAMES, units, strict=True)
    )
