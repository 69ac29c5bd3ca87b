"""How many threads torch may use for what one thread asks of it.

Must not know who asks.
"""

import ctypes
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import torch


def limit_openmp(num_threads: int) -> None:
    """For this thread only; torch.set_num_threads would change threads not yet started, too."""
    torch.get_num_threads()  # the first use in a thread sets its number; ours must come after
    library = _openmp()
    if library is not None:
        library.omp_set_num_threads(num_threads)


def on_threads(num_threads: int, call: Callable[..., Any]) -> Callable[..., Any]:
    """The same call on so many threads; afterwards the thread's own number is as it was."""

    def limited(*args: Any, **kwargs: Any) -> Any:
        torch.get_num_threads()
        library = _openmp()
        if library is None:
            return call(*args, **kwargs)
        before = library.omp_get_max_threads()
        library.omp_set_num_threads(num_threads)
        try:
            return call(*args, **kwargs)
        finally:
            library.omp_set_num_threads(before)

    return limited


def sparing(call: Callable[..., Any], others: Callable[[], int]) -> Callable[..., Any]:
    """The same call, on so many threads fewer as others want cores: one that loses its core is
    waited for by all, at every op."""

    def spared(*args: Any, **kwargs: Any) -> Any:
        wanted = others()
        if wanted == 0:
            return call(*args, **kwargs)
        left = max(1, torch.get_num_threads() - wanted)
        return on_threads(left, call)(*args, **kwargs)

    return spared


@cache
def _openmp() -> ctypes.CDLL | None:
    """The one torch has loaded."""
    for line in Path("/proc/self/maps").read_text().splitlines():
        path = line.split(maxsplit=5)[-1]
        if "libgomp" in path or "libiomp" in path:
            return ctypes.CDLL(path)
    return None
