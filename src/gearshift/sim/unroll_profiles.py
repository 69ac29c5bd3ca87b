"""What kernels of recurrent layers were measured to take, on a quiet machine, and what follows for
sizes between those measured.

Must not know who measured.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from math import isfinite
from pathlib import Path
from typing import Any

import numpy as np

from gearshift.errors import UsageError
from gearshift.ir.recurrent import GATES
from gearshift.sim.profiles import read_as

SHIPPED = Path(__file__).with_name("unroll_profiles.json")
"""Recorded by `gearshift train unroll --record`."""
LEAST_CALL_S = 1e-6
"""What is measured to cost less is within the noise of its steps."""


@dataclass(frozen=True, slots=True, kw_only=True)
class KernelProfile:
    """One layer in one direction."""

    kind: str
    input_size: int
    hidden_size: int
    rows: int
    kernel: str
    threads: int
    call_s: float
    """What a chunk takes beyond its steps,"""
    step_s: float
    """and what each of them adds."""


def read_kernels(path: Path) -> list[KernelProfile]:
    """Raises UsageError, which names the file, if it holds something else."""
    if path == SHIPPED and not path.exists():
        raise UsageError(
            "no kernels are recorded yet: measure them with `gearshift train unroll --record`, or"
            " give --profiles FILE"
        )
    return read_as(path, _kernel)


def _kernel(entry: dict[str, Any]) -> KernelProfile:
    found = KernelProfile(**entry)
    name = f"{found.kernel} for {found.kind} {found.hidden_size} with {found.rows} rows"
    if found.kind not in GATES:
        raise ValueError(f"no kind {found.kind!r}; there are {', '.join(GATES)}")
    sizes = (found.input_size, found.hidden_size, found.rows, found.threads)
    if not all(type(size) is int and size > 0 for size in sizes):
        raise ValueError(f"{name}: sizes are whole numbers above 0")
    if not all(isfinite(seconds) and seconds > 0 for seconds in (found.call_s, found.step_s)):
        raise ValueError(f"{name} takes no time")
    return found


@dataclass(frozen=True, slots=True)
class Pace:
    """Of one layer in one direction, on its engine."""

    kernels: tuple[tuple[tuple[float, ...], tuple[float, ...]], ...]
    """For each kernel, by the number of rows: what a chunk takes beyond its steps, what each step
    adds."""

    def work_s(self, num_steps: int, num_rows: int) -> float:
        """A chunk, by the kernel that is best for it."""
        return min(call[num_rows] + num_steps * step[num_rows] for call, step in self.kernels)

    def call_s(self, num_steps: int, num_rows: int) -> float:
        """Of that, what is not its steps'."""
        best = min(self.kernels, key=lambda k: k[0][num_rows] + num_steps * k[1][num_rows])
        return best[0][num_rows]


@dataclass(frozen=True, slots=True, eq=False)
class Grid:
    """Of one kernel: a table by hidden size and rows, all as logarithms to the base of two."""

    hidden: np.ndarray
    rows: np.ndarray
    call: np.ndarray
    step: np.ndarray
    """Over what a step reads and keeps of a row: so it counts for other input sizes, too."""

    def by_rows(
        self, read_size: int, hidden_size: int, num_rows: int
    ) -> tuple[tuple[float, ...], tuple[float, ...]]:
        """For no row up to so many. Beyond the table, as at its edge."""
        wanted = np.log2(np.maximum(1, np.arange(num_rows + 1)))
        both = []
        for table in (self.call, self.step):
            row = [float(np.interp(np.log2(hidden_size), self.hidden, of)) for of in table.T]
            both.append(2.0 ** np.interp(wanted, self.rows, row))
        call_s, step_s = both[0], both[1] * (read_size + hidden_size)
        return tuple(map(float, call_s)), tuple(map(float, step_s))


@dataclass(frozen=True, slots=True, eq=False)
class Kernels:
    """All that was recorded."""

    grids: Mapping[tuple[str, int], tuple[Grid, ...]]
    """By kind and threads; one for each kernel."""

    @classmethod
    def of(cls, profiles: Iterable[KernelProfile]) -> "Kernels":
        """Raises UsageError if there is not enough to go by."""
        ordered = sorted(profiles, key=lambda p: (p.kind, p.threads))
        groups = groupby(ordered, key=lambda p: (p.kind, p.threads))
        return cls({key: _grids(list(some)) for key, some in groups})

    def pace(
        self, kind: str, threads: int, *, read_size: int, hidden_size: int, num_rows: int
    ) -> Pace:
        grids = self.grids.get((kind, threads))
        if grids is None:
            raise UsageError(f"no kernels were recorded for {kind} on {threads} threads")
        return Pace(tuple(grid.by_rows(read_size, hidden_size, num_rows) for grid in grids))


Points = dict[tuple[int, int], KernelProfile]
"""By hidden size and rows."""


def _grids(profiles: Sequence[KernelProfile]) -> tuple[Grid, ...]:
    """A hidden size counts if some kernel was measured there with every number of rows; a kernel,
    if it was at all of these."""
    by_kernel: dict[str, Points] = {}
    for profile in profiles:
        point = (profile.hidden_size, profile.rows)
        by_kernel.setdefault(profile.kernel, {})[point] = profile
    rows = sorted({profile.rows for profile in profiles})
    hidden = [
        size
        for size in sorted({profile.hidden_size for profile in profiles})
        if any(all((size, n) in points for n in rows) for points in by_kernel.values())
    ]
    whole = [(size, n) for size in hidden for n in rows]
    found = [points for points in by_kernel.values() if all(point in points for point in whole)]
    if not hidden or not found:
        one = profiles[0]
        raise UsageError(
            f"of {one.kind} on {one.threads} threads no kernel was recorded at all sizes; record"
            " them anew with `gearshift train unroll --record`"
        )
    return tuple(_grid(points, hidden, rows) for points in found)


def _grid(points: Points, hidden: Sequence[int], rows: Sequence[int]) -> Grid:
    table = [[points[size, n] for n in rows] for size in hidden]
    return Grid(
        hidden=np.log2(np.array(hidden, float)),
        rows=np.log2(np.array(rows, float)),
        call=np.log2([[max(LEAST_CALL_S, point.call_s) for point in line] for line in table]),
        step=np.log2([[_share_s(point) for point in line] for line in table]),
    )


def _share_s(point: KernelProfile) -> float:
    return point.step_s / (point.input_size + point.hidden_size)
