"""How long threads that were ready waited for a core: of given threads, and of all of ours.

Must not know what the threads are for. A thread without work waits for nothing and has no share.
"""

from pathlib import Path

from gearshift.ir.measurement import Source
from gearshift.observe.hal.counters import Description, Readings, Unit, measured, nothing, share
from gearshift.observe.hal.growth import Growth
from gearshift.observe.hal.kernel_file import PROC, KernelFile
from gearshift.observe.hal.process_tree import ProcessTree
from gearshift.observe.hal.tasks import parse_times


class ThreadDelay:
    """Of the threads it is told to watch, by name; three microseconds each."""

    def __init__(self, *, proc: Path = PROC) -> None:
        self._tasks = proc / "self" / "task"
        self._threads: dict[str, _Thread] = {}
        self._closed = False

    def watch(self, name: str, thread_id: int) -> None:
        self.forget(name)
        thread = _Thread(self._tasks / str(thread_id) / "schedstat")
        self._threads[f"thread.{name}.run_delay_share"] = thread
        if self._closed:
            thread.file.close()

    def forget(self, name: str) -> None:
        thread = self._threads.pop(f"thread.{name}.run_delay_share", None)
        if thread is not None:
            thread.file.close()

    def describe(self) -> tuple[Description, ...]:
        return tuple(
            Description(
                name=name,
                unit=Unit.SHARE,
                source=Source.MEASURED if thread.file.readable else Source.UNAVAILABLE,
                origin=thread.file.reason or f"{thread.path}; none while the thread has no work",
            )
            for name, thread in list(self._threads.items())
        )

    def read(self, now_s: float) -> Readings:
        return {name: measured(thread.read()) for name, thread in list(self._threads.items())}

    def close(self) -> None:
        self._closed = True
        for thread in self._threads.values():
            thread.file.close()


class _Thread:
    __slots__ = ("_before", "file", "path")

    def __init__(self, path: Path) -> None:
        self.path, self.file = path, KernelFile(path)
        self._before: tuple[float, float] | None = None

    def read(self) -> float | None:
        before, now = self._before, parse_times(self.file.read(64))
        self._before = now
        if before is None or now is None:
            return None
        ran_s, waited_s = now[0] - before[0], now[1] - before[1]
        return share(waited_s, ran_s + waited_s)


class ProcessDelay:
    """Of all threads of this process together, as they come and go."""

    NAMES = ("process.run_delay_share", "process.busy_cores")

    def __init__(self, *, tree: ProcessTree) -> None:
        self._tree = tree
        self._run, self._delay = Growth(), Growth()

    def describe(self) -> tuple[Description, ...]:
        reason = self._tree.reason
        origin = reason or "/proc/self/task/*/schedstat, all threads of this process"
        source = Source.UNAVAILABLE if reason else Source.MEASURED
        units = (Unit.SHARE, Unit.CORES)
        return tuple(
            Description(name=name, unit=unit, source=source, origin=origin)
            for name, unit in zip(self.NAMES, units, strict=True)
        )

    def read(self, now_s: float) -> Readings:
        self._tree.sample(now_s)
        totals = self._tree.own.totals
        run = self._run.since_last(now_s, totals.run_s)
        delay = self._delay.since_last(now_s, totals.delay_s)
        if run is None or delay is None or not self._tree.readable:
            return nothing(self.NAMES)
        values = share(delay[1], run[1] + delay[1]), run[1] / run[0]
        return {name: measured(value) for name, value in zip(self.NAMES, values, strict=True)}

    def close(self) -> None:
        self._tree.close()
