"""What may be decided for a program on the engines there are.

Must not know which of it is wise.
"""

import math
from contextlib import suppress
from functools import partial

import torch

from gearshift.act.backends import BACKENDS
from gearshift.act.pool import EnginePool
from gearshift.act.recurrent.cell import stacks_of
from gearshift.act.recurrent.kernels import kernels_for
from gearshift.capture.program import Fragment, Program
from gearshift.ir.recurrent import Stack
from gearshift.ir.topology import CALLER, members
from gearshift.plan.legal import Space
from gearshift.plan.plan import Region

PARALLEL = ("onnxruntime", "openvino")
"""Backends that leave the GIL to others while they run."""


def space_of(program: Program, pool: EnginePool, quota: float | None = None) -> Space:
    """`quota` is how many cores' worth of time we get, if that is limited."""
    runnable = {
        name: frozenset(op for fragment in program.fragments for op in backend.runnable(fragment))
        for name, backend in BACKENDS.items()
    }
    num_cores = len(pool.get(CALLER).spec.cores)
    usable = num_cores if quota is None else max(1, min(num_cores, math.ceil(quota)))
    rewrites = [r for b in BACKENDS.values() for r in b.rewrites(usable) if runnable[b.name]]
    stacks = {name: s for f in program.fragments for name, s in stacks_of(f).items()}
    specs = [spec for spec in pool.topology.engines if spec.kind == "cuda"]
    return Space(
        graph=program.graph,
        engines=pool.usable,
        rewrites=tuple(rewrites),
        runnable={name: ops for name, ops in runnable.items() if ops or name == "eager"},
        settings={name: backend.settings for name, backend in BACKENDS.items()},
        engine_backends={spec.name: frozenset({"eager"}) for spec in specs},
        max_threads=num_cores,
        usable_cores=usable,
        why_undivided=partial(_why_undivided, program),
        why_untiled=partial(_why_untiled, program),
        stacks=stacks,
        kernels={name: _kernels(program, name, stack) for name, stack in stacks.items()},
        count_rows=partial(_count_rows, program),
    )


def _count_rows(program: Program) -> int:
    return max(map(_num_rows, program.fragments), default=0)


def _num_rows(fragment: Fragment) -> int:
    """As they are counted where all of it is divided by rows; where it cannot be, the first size of
    its first tensor that has one."""
    if fragment.onnx is not None:
        from gearshift.act.lower.rows import Undivided, rows_of  # needs what reads ONNX

        with suppress(Undivided):
            rows = rows_of(fragment, [op.name for op in fragment.graph.ops])
            return fragment.sizes.bind(fragment.example)[rows.symbol]
    sizes = [t.shape[0] for t in fragment.example if isinstance(t, torch.Tensor) and t.dim()]
    return sizes[0] if sizes else 0


def _kernels(program: Program, op: str, stack: Stack) -> frozenset[str]:
    fragment = next(f for f in program.fragments if op in f.graph.position)
    dtype = getattr(torch, fragment.graph.values[fragment.graph.by_name[op].outputs[0]].dtype)
    return kernels_for(stack.kind, dtype, projected=stack.out_size is not None)


def _fragment(program: Program, region: Region) -> Fragment:
    return next(f for f in program.fragments if region.name in f.graph.position)


def _why_untiled(program: Program, region: Region) -> str | None:
    fragment = _fragment(program, region)
    if fragment.onnx is None:
        return "only what has an ONNX form is proven to keep rows apart"
    from gearshift.act.lower.tiles import why_untiled  # needs what reads ONNX

    return why_untiled(fragment, region)


def _why_undivided(program: Program, region: Region) -> str | None:
    """Only what needs no Python at run time can run in parts at the same time."""
    fragment = _fragment(program, region)
    if region.rewrite.backend not in PARALLEL or fragment.onnx is None:
        return f"{region.rewrite.backend} does not run in parts; {', '.join(PARALLEL)} do"
    from gearshift.act.lower.split import why_undivided  # needs what reads ONNX

    return why_undivided(fragment, region, len(members(region.engine)))
