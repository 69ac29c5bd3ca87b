"""Records what the unroll world is made of: kernels of recurrent layers, over a grid of sizes.

Must not know the simulator's rules; it writes what was measured.
"""

from collections.abc import Callable, Iterator
from itertools import product
from time import perf_counter

from gearshift.ir.recurrent import GRU, LSTM
from gearshift.sim.unroll_profiles import KernelProfile

Say = Callable[[str], None]
MINUTES = 10.0
HIDDEN_SIZES = (32, 1024, 256, 128, 512, 64)
"""The ends first: what is recorded when the time is up spans all sizes."""
KINDS = (LSTM, GRU)
THREADS = (1, 2)
ROWS = (1, 4, 8, 16, 32, 64)


def record(say: Say, minutes: float = MINUTES) -> Iterator[KernelProfile]:
    """One hidden size after the other, until the time is up; layers read what others of the same
    size make."""
    from gearshift.bench.rnn_kernels import time_kernels

    end_s = perf_counter() + 60 * minutes
    points = list(product(HIDDEN_SIZES, KINDS, THREADS, ROWS))
    for number, (hidden_size, kind, threads, rows) in enumerate(points, 1):
        if perf_counter() > end_s:
            say(f"no time for {len(points) - number + 1} of {len(points)} sizes")
            return
        say(f"{kind} {hidden_size}, {rows} rows, {threads} threads: {number} of {len(points)}")
        timed = time_kernels(kind, hidden_size, hidden_size, rows, threads)
        for kernel, (call_s, step_s) in timed.items():
            yield KernelProfile(
                kind=kind,
                input_size=hidden_size,
                hidden_size=hidden_size,
                rows=rows,
                kernel=kernel,
                threads=threads,
                call_s=call_s,
                step_s=step_s,
            )
