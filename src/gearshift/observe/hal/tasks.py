"""The threads of one process: how long they ran and waited for a core, and on which core.

Must not know whose process it is, nor what is made of the times.
"""

import os
from dataclasses import dataclass, field
from pathlib import Path

from gearshift.observe.hal.kernel_file import KernelFile

RESCAN_S = 1.0
"""The list of threads is read again after this time, and whenever their number changes."""

MAX_TASKS = 128
"""Threads watched per process; bounds the descriptors held open."""

TURN = 48
"""Threads looked at per sample; with more than these, they take turns and nothing is lost."""

SHORT_RUN_S = 0.001

NO_STEP = (0.0, 0.0)

CORE_FIELD = 36
"""`processor` in a stat file, counted from the field after the name."""


@dataclass(slots=True, kw_only=True)
class RunTotals:
    """Sums since the watching began."""

    run_s: float = 0.0
    delay_s: float = 0.0
    core_run_s: dict[int, float] = field(default_factory=dict)

    def add(self, other: "RunTotals") -> None:
        self.run_s += other.run_s
        self.delay_s += other.delay_s
        for core, run_s in other.core_run_s.items():
            self.core_run_s[core] = self.core_run_s.get(core, 0.0) + run_s


class Task:
    __slots__ = ("_core", "_folder", "_schedstat", "_stat", "_text", "delay_s", "run_s")

    def __init__(self, folder: str) -> None:
        self._folder = folder
        self._schedstat = KernelFile(f"{folder}/schedstat")
        self._stat: KernelFile | None = None
        self._core: int | None = None
        self._text = self._schedstat.read(64) or b""
        self.run_s, self.delay_s = parse_times(self._text) or NO_STEP

    def backdate(self, seconds: float) -> None:
        """What it did in these last seconds becomes part of the next step."""
        self._text = b""
        self.run_s = max(0.0, self.run_s - seconds)
        self.delay_s = max(0.0, self.delay_s - seconds)

    def step(self) -> tuple[float, float] | None:
        """Seconds run and waited since the last step; None when the thread is gone."""
        text = self._schedstat.read(64)
        if not text:
            return None
        if text == self._text:
            return NO_STEP
        times = parse_times(text)
        if times is None:
            return None
        step = times[0] - self.run_s, times[1] - self.delay_s
        self._text, (self.run_s, self.delay_s) = text, times
        return step

    def core(self, ran_s: float) -> int | None:
        """The core it ran on last; after a short run, the one known from before."""
        if self._core is not None and ran_s < SHORT_RUN_S:
            return self._core
        if self._stat is None:
            self._stat = KernelFile(f"{self._folder}/stat")
        text = self._stat.read(1024) or b""
        fields = text[text.rfind(b")") + 2 :].split(maxsplit=CORE_FIELD + 1)
        self._core = int(fields[CORE_FIELD]) if len(fields) > CORE_FIELD else None
        return self._core

    def close(self) -> None:
        self._schedstat.close()
        if self._stat is not None:
            self._stat.close()


class Tasks:
    """`since_s` is when the process was known not to exist; None if it may be older."""

    def __init__(self, folder: Path, *, since_s: float | None = None) -> None:
        self.totals = RunTotals()
        self._folder = str(folder)
        self._fd = _open_folder(self._folder)
        self._tasks: dict[str, Task] = {}
        self._scanned_s = since_s
        self._num_links = -1
        self._someone_left = False
        self._turn = 0

    @property
    def alive(self) -> bool:
        return self._fd >= 0

    @property
    def ids(self) -> tuple[str, ...]:
        return tuple(self._tasks)

    def sample(self, now_s: float) -> None:
        """Adds to the totals what was run since the last sample."""
        if self._outdated(now_s):
            self._rescan(now_s)
        for key, task in self._next_ones():
            step = task.step()
            if step is None:
                self._someone_left = True
                self._tasks.pop(key).close()
            elif step is not NO_STEP:
                self._add(task, *step)

    def close(self) -> None:
        for task in self._tasks.values():
            task.close()
        self._tasks = {}
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1

    def _next_ones(self) -> list[tuple[str, Task]]:
        tasks = list(self._tasks.items())
        if len(tasks) <= TURN:
            return tasks
        first = self._turn % len(tasks)
        self._turn = first + TURN
        return (tasks + tasks)[first : first + TURN]

    def _add(self, task: Task, ran_s: float, waited_s: float) -> None:
        totals = self.totals
        totals.run_s += ran_s
        totals.delay_s += waited_s
        core = task.core(ran_s)
        if core is not None:
            totals.core_run_s[core] = totals.core_run_s.get(core, 0.0) + ran_s

    def _outdated(self, now_s: float) -> bool:
        """The links of the folder change with the number of threads, and are cheap to count."""
        if self._fd < 0:
            return False
        if self._someone_left or self._scanned_s is None:
            return True
        return now_s - self._scanned_s >= RESCAN_S or os.fstat(self._fd).st_nlink != self._num_links

    def _rescan(self, now_s: float) -> None:
        self._num_links = os.fstat(self._fd).st_nlink
        try:
            listed = os.listdir(self._fd)
        except OSError:
            listed = []
        for key in self._tasks.keys() - set(listed):
            self._tasks.pop(key).close()
        for key in sorted(set(listed) - self._tasks.keys(), key=int):
            if len(self._tasks) < MAX_TASKS:
                self._tasks[key] = self._admit(key, now_s)
        self._someone_left, self._scanned_s = False, now_s
        if not self._tasks:
            self.close()

    def _admit(self, key: str, now_s: float) -> Task:
        """What a new thread ran before it was found is counted, as far as it can be new."""
        task = Task(f"{self._folder}/{key}")
        if self._scanned_s is not None:
            task.backdate(max(0.0, now_s - self._scanned_s))
        return task


def parse_times(schedstat: bytes | None) -> tuple[float, float] | None:
    """Seconds a thread ran, and seconds it was ready but had no core."""
    fields = schedstat.split() if schedstat else ()
    return (int(fields[0]) * 1e-9, int(fields[1]) * 1e-9) if len(fields) >= 2 else None


def _open_folder(folder: str) -> int:
    try:
        return os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    except OSError:
        return -1
