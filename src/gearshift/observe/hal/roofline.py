"""The roofline of this machine, measured once: multiply-adds a second, and bytes a second from L1,
L2, L3 and DRAM. Must not know models or regions.
"""

import os
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np

from gearshift.ir.roofline import Caches, Roofline
from gearshift.observe.hal.blas import one_blas_thread
from gearshift.observe.hal.caches import find_caches

MIN_RUNS = 3
BUDGET_S = 0.05
"""Each figure is the best of the runs that fit into this time."""
RUN_BYTES = 1 << 25
"""Each thread reads at least this much per run, however small its set: about a millisecond."""
MATRIX = 512
"""Rows and columns of the products that tell the peak, one for each thread at a time: small ones do
not reach what models do."""
MAX_DRAM_BYTES = 1 << 28

Clock = Callable[[], float]


def measure_roofline(
    *,
    num_threads: int | None = None,
    caches: Caches | None = None,
    clock: Clock = time.perf_counter,
) -> Roofline:
    """Best of several short runs, so that a passing neighbour does not lower the roof."""
    start_s = clock()
    caches = caches or find_caches()
    threads = num_threads or len(os.sched_getaffinity(0))
    with ThreadPoolExecutor(threads) as pool:
        l1, l2, l3, dram = (
            _read_bytes_s(pool, threads, set_bytes, clock)
            for set_bytes in _set_sizes(caches, threads)
        )
        peak = _peak_flops_s(pool, threads, clock)
    return Roofline(
        num_threads=threads,
        caches=caches,
        peak_flops_s=peak,
        l1_bytes_s=l1,
        l2_bytes_s=min(l1, l2),
        l3_bytes_s=min(l1, l2, l3),
        dram_bytes_s=min(l1, l2, l3, dram),
        took_s=clock() - start_s,
    )


def _set_sizes(caches: Caches, threads: int) -> tuple[int, int, int, int]:
    """Bytes for each thread: half of every cache, and twice what the last one holds."""
    dram = min(MAX_DRAM_BYTES, 2 * caches.l3_bytes)
    return (
        caches.l1_bytes // 2,
        caches.l2_bytes // 2,
        max(caches.l2_bytes, caches.l3_bytes // 2 // threads),
        dram // threads,
    )


def _read_bytes_s(pool: ThreadPoolExecutor, threads: int, set_bytes: int, clock: Clock) -> float:
    sweeps = max(1, RUN_BYTES // set_bytes)
    # Filled, not zeroed: pages never written to would all be the same page of zeros.
    sets = [np.full(set_bytes // 4, 1.0, np.float32) for _ in range(threads)]
    repeated = [np.broadcast_to(part, (sweeps, part.size)) for part in sets]
    return _best(lambda: sum(pool.map(_sweep_bytes_s, repeated)), clock)


def _sweep_bytes_s(repeated: np.ndarray[Any, Any]) -> float:
    """One vectorised read of the set per row, without Python in between and without the GIL.

    By the thread's own CPU time: time in which a neighbour had the core says nothing of memory.
    """
    start_s = time.thread_time()
    np.maximum.reduce(repeated, axis=1)
    return repeated.size * repeated.itemsize / (time.thread_time() - start_s)


def _peak_flops_s(pool: ThreadPoolExecutor, threads: int, clock: Clock) -> float:
    """By each thread's own CPU time; where a product may run on threads of its own, by the clock,
    which a neighbour makes slower."""
    matrix = np.full((MATRIX, MATRIX), 0.5, np.float32)
    with one_blas_thread() as alone:
        timer = time.thread_time if alone else time.perf_counter

        def multiply_flops_s(_: int) -> float:
            start_s = timer()
            np.matmul(matrix, matrix)
            return 2 * MATRIX**3 / (timer() - start_s)

        return _best(lambda: sum(pool.map(multiply_flops_s, range(threads))), clock)


def _best(run: Callable[[], float], clock: Clock) -> float:
    end_s = clock() + BUDGET_S
    rates = [run() for _ in range(MIN_RUNS)]
    while clock() < end_s:
        rates.append(run())
    return max(rates)
