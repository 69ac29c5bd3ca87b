"""What may be decided for a program on the engines there are.

Must not know which of it is wise.
"""

import math

from gearshift.act.backends import BACKENDS
from gearshift.act.pool import EnginePool
from gearshift.capture.program import Program
from gearshift.ir.topology import CALLER
from gearshift.plan.legal import Space


def space_of(program: Program, pool: EnginePool, quota: float | None = None) -> Space:
    """`quota` is how many cores' worth of time we get, if that is limited."""
    runnable = {
        name: frozenset(op for fragment in program.fragments for op in backend.runnable(fragment))
        for name, backend in BACKENDS.items()
    }
    num_cores = len(pool.get(CALLER).spec.cores)
    usable = num_cores if quota is None else max(1, min(num_cores, math.ceil(quota)))
    rewrites = [r for b in BACKENDS.values() for r in b.rewrites(usable) if runnable[b.name]]
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
    )
