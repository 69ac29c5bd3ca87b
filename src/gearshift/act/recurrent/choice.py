"""Which kernel computes a cell fastest here: measured once for each shape.

Must not know plans. Kernels that come out wrong are never chosen.
"""

import logging
from dataclasses import replace
from statistics import median
from threading import Lock
from time import perf_counter

import torch

from gearshift.act.backends.protocol import Order
from gearshift.act.openmp import on_threads
from gearshift.act.recurrent.cell import Cell
from gearshift.act.recurrent.kernels import (
    CELLS,
    TORCH,
    Kernel,
    State,
    build_kernel,
    by_torch,
    kernels_for,
)
from gearshift.errors import CompileError, GearshiftError
from gearshift.ir.topology import CALLER
from gearshift.plan.unroll import Steps

log = logging.getLogger("gearshift")
ROUNDS = 3
LONG = 32
"""A longer chunk is measured at this length, and needs no other kernel: its steps are alike."""
TOLERANCE = 1e-5
"""Of a kernel against torch's own, relative to the largest magnitude; float64 to 1e-9."""
Form = tuple[object, ...]
_known: dict[Form, str] = {}
_measuring = Lock()


def fastest(cell: Cell, steps: Steps, order: Order, num_steps: int, num_rows: int) -> Kernel:
    """The kernel that is asked for or, if none is, measures best for chunks of this size; in either
    case it gave what torch gives, state in to state out. If the first chunk is of another size, one
    for that, too."""
    if steps.first:
        of_each = (replace(steps, first=0, then=size) for size in (steps.first, steps.then))
        head, rest = (fastest(cell, one, order, num_steps, num_rows) for one in of_each)
        return lambda x, state: (head if len(x) > steps.then else rest)(x, state)
    size = min(steps.then or num_steps, num_steps)
    if steps.kernel:
        return _proven(steps.kernel, cell, order, size, num_rows)
    form: Form = (cell.kind, cell.input_size, cell.hidden_size, cell.made_size, cell.has_biases)
    form += (cell.dtype, min(size, LONG), num_rows, order.threads, order.engine.name == CALLER)
    with _measuring:
        name = _known.get(form)
        if name is None:
            name = _known[form] = _measured(cell, order, size, num_rows)
    return _proven(name, cell, order, size, num_rows)


def _measured(cell: Cell, order: Order, size: int, num_rows: int) -> str:
    """What takes long to build is not among them."""
    names = kernels_for(cell.kind, cell.dtype, projected=cell.projection is not None) - {CELLS}
    found: dict[str, Kernel] = {}
    for name in sorted(names):
        try:
            found[name] = _proven(name, cell, order, size, num_rows)
        except (GearshiftError, RuntimeError) as refusal:
            log.info("kernel %s refused: %s", name, refusal)
    able = {name: on_threads(order.threads, kernel) for name, kernel in found.items()}
    return _quickest(able, cell, min(size, LONG), num_rows)


@torch.no_grad()
def _quickest(kernels: dict[str, Kernel], cell: Cell, size: int, num_rows: int) -> str:
    """In turns; the first call after another's, whose threads may still spin, does not count."""
    x, state = _drawn(cell, size, num_rows)
    took_s: dict[str, list[float]] = {name: [] for name in kernels}
    for _ in range(ROUNDS):
        for name, kernel in kernels.items():
            kernel(x, state)
            start_s = perf_counter()
            kernel(x, state)
            took_s[name].append(perf_counter() - start_s)
    return min(took_s, key=lambda name: median(took_s[name]))


def _proven(name: str, cell: Cell, order: Order, size: int, num_rows: int) -> Kernel:
    kernel = build_kernel(name, cell, order, num_steps=size, num_rows=num_rows)
    if name != TORCH:
        for steps in {min(size, LONG), 1}:
            given = _drawn(cell, steps, num_rows)
            _compare(name, by_torch(cell)(*given), kernel(*given))
    return kernel


def _drawn(cell: Cell, size: int, num_rows: int) -> tuple[torch.Tensor, State]:
    generator = torch.Generator().manual_seed(size)

    def draw(*shape: int) -> torch.Tensor:
        return torch.randn(*shape, generator=generator, dtype=cell.dtype)

    state = tuple(0.5 * draw(1, num_rows, width) for width in cell.state_sizes())
    return draw(size, num_rows, cell.input_size), state


def _compare(
    name: str, wanted: tuple[torch.Tensor, State], got: tuple[torch.Tensor, State]
) -> None:
    for want, have in zip((wanted[0], *wanted[1]), (got[0], *got[1]), strict=True):
        largest = max(1e-30, want.abs().max().item())
        error = (want - have).abs().max().item() / largest if want.shape == have.shape else 2.0
        allowed = TOLERANCE if want.dtype is not torch.float64 else TOLERANCE**2
        if not error <= allowed:
            raise CompileError(f"kernel {name} differs from torch's own by {error:.2g}")
