"""Busy processes that take cores away, as a benchmark's trace says.

Must not know who is measured beside them.
"""

import os
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

KINDS = {
    "arithmetic": "def work():\n    sum(range(100_000))",
    "memory": "import numpy\na = numpy.zeros(1 << 25)\ndef work():\n    global a\n    a += 1.0",
}
WHILE_WANTED = "import os\nparent = os.getppid()\nwhile os.getppid() == parent:\n    work()"


@dataclass(frozen=True, slots=True, kw_only=True)
class Neighbour:
    kind: str
    core: int | None
    """None: wherever the system puts it."""

    def __str__(self) -> str:
        return f"{self.kind} on {'any core' if self.core is None else f'core {self.core}'}"


@contextmanager
def busy(neighbours: Sequence[Neighbour]) -> Iterator[None]:
    processes = [_start(neighbour) for neighbour in neighbours]
    try:
        yield
    finally:
        for process in processes:
            process.kill()
            process.wait()


def _start(neighbour: Neighbour) -> subprocess.Popen[bytes]:
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}
    code = f"{KINDS[neighbour.kind]}\n{WHILE_WANTED}"
    process = subprocess.Popen([sys.executable, "-c", code], env=environment)
    if neighbour.core is not None:
        os.sched_setaffinity(process.pid, {neighbour.core})
    return process
