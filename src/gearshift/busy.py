"""Busy processes that take cores away: stand-ins for neighbours.

Must not know who is measured beside them.
"""

import os
import signal
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass

ARITHMETIC = "arithmetic"
KINDS = {
    ARITHMETIC: "def work():\n    sum(range(100_000))",
    "memory": "import numpy\na = numpy.zeros(1 << 25)\ndef work():\n    global a\n    a += 1.0",
}
WHILE_WANTED = "import os\nwhile os.path.exists('/proc/{pid}'):\n    work()"
DETACHED = '"$0" -c "$1" > /dev/null 2>&1 & echo $!'
"""No child of ours: what our children do is taken for our own work."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Neighbour:
    kind: str
    core: int | None
    """None: wherever the system puts it."""

    def __str__(self) -> str:
        return f"{self.kind} on {'any core' if self.core is None else f'core {self.core}'}"


@contextmanager
def busy(neighbours: Sequence[Neighbour]) -> Iterator[list[int]]:
    """Gives their process ids."""
    pids = [_start(neighbour) for neighbour in neighbours]
    try:
        yield pids
    finally:
        for pid in pids:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)


def _start(neighbour: Neighbour) -> int:
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}
    code = f"{KINDS[neighbour.kind]}\n{WHILE_WANTED.format(pid=os.getpid())}"
    command = ["sh", "-c", DETACHED, sys.executable, code]
    told = subprocess.run(command, env=environment, stdout=subprocess.PIPE, check=True)
    pid = int(told.stdout)
    if neighbour.core is not None:
        os.sched_setaffinity(pid, {neighbour.core})
    return pid
