"""This process and those it started, down to the last: where they ran and for how long.

Must not know other processes, nor what is made of the times.
"""

import os
import time
from pathlib import Path

from gearshift.observe.hal.kernel_file import PROC
from gearshift.observe.hal.tasks import RunTotals, Tasks

RESCAN_S = 0.25
"""New child processes are looked for this often."""


class ProcessTree:
    """Our own process's clock counts every thread, also those that come and go between two looks;
    another's is the sum of the threads seen."""

    def __init__(self, *, proc: Path = PROC, pid: int | None = None) -> None:
        self._proc = proc
        self._clock = time.process_time if pid is None and proc == PROC else None
        self._clock_s = 0.0 if self._clock is None else self._clock()
        self._pid = str(os.getpid() if pid is None else pid)
        self.own = Tasks(proc / self._pid / "task")
        self._others: dict[str, Tasks] = {}
        self._gone = RunTotals()
        self.totals = RunTotals()
        self._scanned_s: float | None = None
        self._sampled_s: float | None = None
        first = proc / self._pid / "task" / self._pid / "schedstat"
        self.reason = "" if first.is_file() else f"{first}: no such file"

    @property
    def readable(self) -> bool:
        return not self.reason

    def sample(self, now_s: float) -> None:
        """Brings `own` and `totals` up to date; once per `now_s`, however many ask."""
        if now_s == self._sampled_s or not self.readable:
            return
        self._sampled_s = now_s
        self.own.sample(now_s)
        if self._scanned_s is None or now_s - self._scanned_s >= RESCAN_S:
            self._rescan(now_s)
        for tasks in self._others.values():
            tasks.sample(now_s)
        self.totals = self._sums()

    def close(self) -> None:
        for tasks in (self.own, *self._others.values()):
            tasks.close()
        self.reason = self.reason or "closed"

    def _sums(self) -> RunTotals:
        """Of the whole tree, including those that have ended."""
        sums = RunTotals()
        for totals in (self._gone, self.own.totals, *(t.totals for t in self._others.values())):
            sums.add(totals)
        if self._clock is not None:
            sums.run_s += self._clock() - self._clock_s - self.own.totals.run_s
        return sums

    def _rescan(self, now_s: float) -> None:
        for pid in self._descendants():
            if pid not in self._others:
                folder = self._proc / pid / "task"
                self._others[pid] = Tasks(folder, since_s=self._scanned_s)
        for pid, tasks in list(self._others.items()):
            if not tasks.alive:
                self._gone.add(self._others.pop(pid).totals)
        self._scanned_s = now_s

    def _descendants(self) -> list[str]:
        found: list[str] = []
        waiting = self._children(self._pid, self.own.ids)
        while waiting:
            pid = waiting.pop()
            found.append(pid)
            known = self._others.get(pid)
            waiting += self._children(pid, known.ids if known else (pid,))
        return found

    def _children(self, pid: str, task_ids: tuple[str, ...]) -> list[str]:
        children: list[str] = []
        for task_id in task_ids:
            try:
                with open(f"{self._proc}/{pid}/task/{task_id}/children", "rb") as file:
                    children += file.read().decode().split()
            except OSError:
                continue
        return children
