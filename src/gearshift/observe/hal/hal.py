"""What this machine can tell about itself, behind one object that is read as a whole.

Must not know who reads it or why. Every source is probed for; what is missing says so.
"""

import math
import os
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from gearshift.ir.measurement import Source
from gearshift.ir.roofline import Roofline
from gearshift.ir.work import Work
from gearshift.observe.hal.clock import CpuFreq, CpuInfo
from gearshift.observe.hal.counters import UNAVAILABLE, Counters, Description, Readings, nothing
from gearshift.observe.hal.energy import open_energy
from gearshift.observe.hal.kernel_file import PROC, SYS
from gearshift.observe.hal.memory_model import ModelledMemory
from gearshift.observe.hal.nvml import Nvml
from gearshift.observe.hal.perf_counters import PerfCounters
from gearshift.observe.hal.pressure import Pressure
from gearshift.observe.hal.proc_stat import ProcStat
from gearshift.observe.hal.process_tree import ProcessTree
from gearshift.observe.hal.runnable import Runnable
from gearshift.observe.hal.schedstat import ProcessDelay, ThreadDelay

SLOW_S = 1.0


@dataclass(slots=True)
class _Kept:
    read_s: float = -math.inf
    readings: Readings = field(default_factory=dict)


class Hal:
    """Reads its sources in order: a later one fills in what an earlier one cannot tell. Those that
    are slow are read less often, and tell the same until they are.

    A source that has nothing at all when the HAL is made is described but not asked again.
    May be used from any thread. `cost_s` is the time all reads together took.
    """

    def __init__(
        self,
        sources: Sequence[Counters],
        *,
        threads: ThreadDelay,
        memory: ModelledMemory,
        slow: Sequence[Counters] = (),
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._sources = (*sources, *slow, threads, memory)
        self._slow = {id(source): _Kept() for source in (*slow, memory)}
        late = (threads, memory)  # what these can tell comes later
        self._live = tuple(s for s in self._sources if s in late or _live(s))
        absent = (row.name for s in self._sources if s not in self._live for row in s.describe())
        self._absent = nothing(absent)
        self._threads, self._memory = threads, memory
        self._clock = clock
        self._lock = threading.Lock()
        self.cost_s = 0.0
        self.num_reads = 0

    def read(self) -> Readings:
        """Everything, over the time since the last read."""
        with self._lock:
            start_s = self._clock()
            readings = dict(self._absent)
            for source in self._live:
                for name, metric in self._read(source, start_s).items():
                    if readings.get(name, UNAVAILABLE) is UNAVAILABLE:
                        readings[name] = metric
            self.cost_s += self._clock() - start_s
            self.num_reads += 1
            return readings

    def _read(self, source: Counters, now_s: float) -> Readings:
        kept = self._slow.get(id(source))
        if kept is None:
            return source.read(now_s)
        silent = all(metric.value is None for metric in kept.readings.values())
        if silent or now_s - kept.read_s >= SLOW_S:
            kept.read_s, kept.readings = now_s, source.read(now_s)
        return kept.readings

    def describe(self) -> tuple[Description, ...]:
        """One row per name: from where it is had, or every reason why it is not."""
        rows: dict[str, Description] = {}
        with self._lock:
            for source in self._sources:
                for row in source.describe():
                    rows[row.name] = _better(rows[row.name], row) if row.name in rows else row
        return tuple(rows.values())

    def watch_thread(self, name: str, thread_id: int) -> None:
        """Adds `thread.<name>.run_delay_share`; `thread_id` is the `native_id` of a thread."""
        with self._lock:
            self._threads.watch(name, thread_id)

    def forget_thread(self, name: str) -> None:
        with self._lock:
            self._threads.forget(name)

    def note(self, work: Work) -> None:
        """Tells of work done, so that memory traffic can be modelled where it is not counted."""
        self._memory.note(work)

    def use(self, roofline: Roofline) -> None:
        """From here on memory traffic can be modelled."""
        self._memory.roofline = roofline

    def close(self) -> None:
        with self._lock:
            self._slow.clear()
            for source in self._sources:
                source.close()


def open_hal(
    *,
    cores: Sequence[int] | None = None,
    roofline: Roofline | None = None,
    extra: Sequence[Counters] = (),
    proc: Path = PROC,
    sys: Path = SYS,
    pid: int | None = None,
    clock: Callable[[], float] = time.monotonic,
) -> Hal:
    """`extra` sources come first; `proc` and `sys` may be folders that look like the real ones."""
    cores = _usable_cores() if cores is None else tuple(cores)
    tree = ProcessTree(proc=proc, pid=pid)
    sources = (
        *extra,
        ProcStat(cores=cores, tree=tree, proc=proc),
        ProcessDelay(tree=tree),
        Runnable(proc=proc),
        open_energy(num_cores=len(cores), cpu_s=_cpu_s(tree), sys=sys),
    )
    slow = (
        Pressure(proc=proc),
        CpuFreq(cores=cores, sys=sys),
        CpuInfo(cores=cores, proc=proc),
        Nvml(),
        PerfCounters(),
    )
    memory = ModelledMemory(roofline=roofline)
    threads = ThreadDelay(proc=proc)
    return Hal(sources, threads=threads, memory=memory, slow=slow, clock=clock)


def _usable_cores() -> tuple[int, ...]:
    if hasattr(os, "sched_getaffinity"):
        return tuple(sorted(os.sched_getaffinity(os.getpid())))
    return tuple(range(os.cpu_count() or 1))


def _cpu_s(tree: ProcessTree) -> Callable[[], float]:
    """Children count where the kernel tells of them."""
    return (lambda: tree.totals.run_s) if tree.readable else time.process_time


def _live(source: Counters) -> bool:
    return any(row.source is not Source.UNAVAILABLE for row in source.describe())


def _better(first: Description, second: Description) -> Description:
    if first.source is not Source.UNAVAILABLE:
        return first
    if second.source is not Source.UNAVAILABLE:
        return second
    return Description(
        name=first.name,
        unit=first.unit,
        source=Source.UNAVAILABLE,
        origin=f"{first.origin}; {second.origin}",
    )
