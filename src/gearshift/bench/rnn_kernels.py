"""What a recurrent kernel takes by itself: for a call, and for each step in it.

Must not know what the figures are for.
"""

import statistics
from functools import partial
from time import perf_counter
from typing import Any

import torch
from torch import nn

from gearshift.act.backends.protocol import Order
from gearshift.act.openmp import on_threads
from gearshift.act.recurrent.cell import Cell
from gearshift.act.recurrent.kernels import CELLS, Kernel, build_kernel, kernels_for
from gearshift.errors import GearshiftError
from gearshift.ir.recurrent import GRU, LSTM
from gearshift.ir.topology import EngineSpec
from gearshift.plan.rewrite import Rewrite

MODULES: dict[str, Any] = {LSTM: nn.LSTM, GRU: nn.GRU}
FEW, MANY = 1, 32
"""Steps; from what the two take follows what one does."""
ROUNDS = 7


def time_kernels(
    kind: str, input_size: int, hidden_size: int, rows: int, threads: int
) -> dict[str, tuple[float, float]]:
    """For each kernel that can: seconds of a call, and of each of its steps."""
    module = MODULES[kind](input_size, hidden_size)
    weights = tuple(weight.detach() for weight in module._flat_weights)
    cell = Cell(kind=kind, weights=weights, has_biases=True)
    found = {}
    for name in sorted(kernels_for(kind, torch.float32, projected=False) - {CELLS}):
        try:
            kernel = build_kernel(name, cell, _order(threads), num_steps=MANY, num_rows=rows)
        except GearshiftError:  # not here
            continue
        few_s, many_s = (_took_s(kernel, cell, steps, rows, threads) for steps in (FEW, MANY))
        step_s = max(1e-9, (many_s - few_s) / (MANY - FEW))
        found[name] = (max(1e-9, few_s - FEW * step_s), step_s)
    return found


def _order(threads: int) -> Order:
    spec = EngineSpec(name="measured", kind="cpu", cores=tuple(range(threads)))
    nothing: Any = None
    return Order(fragment=nothing, ops=(), rewrite=Rewrite(), engine=spec)


@torch.no_grad()
def _took_s(kernel: Kernel, cell: Cell, num_steps: int, num_rows: int, threads: int) -> float:
    x = torch.randn(num_steps, num_rows, cell.input_size)
    state = tuple(torch.zeros(1, num_rows, size) for size in cell.state_sizes())
    call = on_threads(threads, partial(kernel, x, state))
    call()
    taken = []
    for _ in range(ROUNDS):
        start_s = perf_counter()
        call()
        taken.append(perf_counter() - start_s)
    return statistics.median(taken)
