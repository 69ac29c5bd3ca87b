"""How many threads torch may use for what one thread asks of it.

Must not know who asks.
"""

import ctypes
from pathlib import Path

import torch


def limit_openmp(num_threads: int) -> None:
    """For this thread only; torch.set_num_threads would change threads not yet started, too."""
    torch.get_num_threads()  # the first use in a thread sets its number; ours must come after
    for line in Path("/proc/self/maps").read_text().splitlines():
        path = line.split(maxsplit=5)[-1]
        if "libgomp" in path or "libiomp" in path:
            ctypes.CDLL(path).omp_set_num_threads(num_threads)
            return
