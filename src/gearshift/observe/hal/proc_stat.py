"""How busy each core is, and how busy with what is not ours.

Must not know who the neighbours are. The kernel counts in ticks of 10 ms, so a value is over at
least WINDOW_S; asked sooner, the last one stands. What the host of a virtual machine takes away is
told apart: it comes in bursts, and from no core in particular, so there is nothing to make way for.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from gearshift.ir.measurement import Source
from gearshift.observe.hal.counters import Description, Readings, Unit, measured, nothing, share
from gearshift.observe.hal.kernel_file import PROC, KernelFile
from gearshift.observe.hal.process_tree import ProcessTree

WINDOW_S = 0.05
IDLE, IOWAIT, STEAL = 4, 5, 8
"""Fields of a line, the name being field 0."""
LINE_BYTES = 160


class Ticks(NamedTuple):
    busy: int
    stolen: int
    total: int


class ProcStat:
    def __init__(self, *, cores: Sequence[int], tree: ProcessTree, proc: Path = PROC) -> None:
        self._file = KernelFile(proc / "stat")
        self._size = LINE_BYTES * (max(cores) + 2)
        self._tree = tree
        self._names = {
            core: (f"core.{core}.busy_share", f"core.{core}.others_share") for core in cores
        }
        self._base: _Look | None = None
        self._last = nothing(self._all_names())

    def describe(self) -> tuple[Description, ...]:
        return tuple(self._describe(name) for name in self._all_names())

    def read(self, now_s: float) -> Readings:
        base = self._base
        if base is not None and self._file.readable and 0 <= now_s - base.now_s < WINDOW_S:
            return dict(self._last)
        self._base = look = self._look(now_s)
        if look is None:
            self._last = nothing(self._all_names())
        elif base is not None and now_s > base.now_s:
            self._last = self._between(base, look)
        return dict(self._last)

    def close(self) -> None:
        self._file.close()

    def _all_names(self) -> list[str]:
        return [
            "cpu.busy_share",
            "cpu.others_share",
            "cpu.stolen_share",
            *(n for pair in self._names.values() for n in pair),
        ]

    def _describe(self, name: str) -> Description:
        reason = self._file.reason
        origin = f"/proc/stat, over {WINDOW_S * 1000:.0f} ms or more"
        if name.endswith("others_share"):
            reason = reason or self._tree.reason
            origin += ", without this process and its children (schedstat, by last core)"
        if name.startswith("cpu."):
            origin += f"; mean of {len(self._names)} cores"
        source = Source.UNAVAILABLE if reason else Source.MEASURED
        return Description(name=name, unit=Unit.SHARE, source=source, origin=reason or origin)

    def _look(self, now_s: float) -> "_Look | None":
        text = self._file.read(self._size)
        if text is None:
            return None
        self._tree.sample(now_s)
        totals = self._tree.totals if self._tree.readable else None
        own = None if totals is None else totals.core_run_s.copy()
        return _Look(now_s, ticks_by_core(text), own, 0.0 if totals is None else totals.run_s)

    def _between(self, old: "_Look", new: "_Look") -> Readings:
        readings: Readings = {}
        shares: list[float | None] = []
        stolen_shares: list[float | None] = []
        for core, (busy_name, others_name) in self._names.items():
            busy, stolen, others = new.since(old, core)
            readings[busy_name], readings[others_name] = measured(busy), measured(others)
            shares.append(busy)
            stolen_shares.append(stolen)
        busy_share, stolen_share = _mean(shares), _mean(stolen_shares)
        readings["cpu.busy_share"] = measured(busy_share)
        readings["cpu.stolen_share"] = measured(stolen_share)
        readings["cpu.others_share"] = measured(self._others(busy_share, old, new))
        return readings

    def _others(self, busy_share: float | None, old: "_Look", new: "_Look") -> float | None:
        """Of all cores together: which core a thread ran on is known only for the last moment."""
        if busy_share is None or new.own is None or old.own is None:
            return None
        cores_s = len(self._names) * (new.now_s - old.now_s)
        return max(0.0, busy_share - (new.own_s - old.own_s) / cores_s)


class _Look:
    """`own` is our run time by core, as far as known; `own_s` all of it."""

    __slots__ = ("now_s", "own", "own_s", "ticks")

    def __init__(
        self,
        now_s: float,
        ticks: dict[int, Ticks],
        own: dict[int, float] | None,
        own_s: float,
    ) -> None:
        self.now_s, self.ticks, self.own, self.own_s = now_s, ticks, own, own_s

    def since(self, old: "_Look", core: int) -> tuple[float | None, float | None, float | None]:
        """A core's busy share, what the host took, and what of the busy share was not ours."""
        if core not in self.ticks or core not in old.ticks:
            return None, None, None
        new_ticks, old_ticks = self.ticks[core], old.ticks[core]
        total = new_ticks.total - old_ticks.total
        busy_share = share(new_ticks.busy - old_ticks.busy, total)
        stolen_share = share(new_ticks.stolen - old_ticks.stolen, total)
        if busy_share is None or self.own is None or old.own is None:
            return busy_share, stolen_share, None
        own_s = self.own.get(core, 0.0) - old.own.get(core, 0.0)
        others_share = max(0.0, busy_share - own_s / (self.now_s - old.now_s))
        return busy_share, stolen_share, others_share


def ticks_by_core(text: bytes) -> dict[int, Ticks]:
    """Ticks of each core. Guest time is within user time already."""
    ticks: dict[int, Ticks] = {}
    for line in text.split(b"\n")[1:]:
        fields = line.split(maxsplit=STEAL + 1)
        if not line.startswith(b"cpu") or len(fields) <= STEAL:
            break
        total, stolen = sum(map(int, fields[1 : STEAL + 1])), int(fields[STEAL])
        busy = total - int(fields[IDLE]) - int(fields[IOWAIT]) - stolen
        ticks[int(fields[0][3:])] = Ticks(busy, stolen, total)
    return ticks


def _mean(values: list[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return sum(known) / len(known) if known else None
