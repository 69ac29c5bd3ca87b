"""What may be decided for a program on the engines there are.

Must not know which of it is wise.
"""

from gearshift.act.backends import BACKENDS
from gearshift.act.pool import EnginePool
from gearshift.capture.program import Program
from gearshift.ir.topology import CALLER
from gearshift.plan.legal import Space


def space_of(program: Program, pool: EnginePool) -> Space:
    runnable = {
        name: frozenset(op for fragment in program.fragments for op in backend.runnable(fragment))
        for name, backend in BACKENDS.items()
    }
    num_cores = len(pool.get(CALLER).spec.cores)
    rewrites = [r for b in BACKENDS.values() for r in b.rewrites(num_cores) if runnable[b.name]]
    specs = [spec for spec in pool.topology.engines if spec.kind == "cuda"]
    return Space(
        graph=program.graph,
        engines=pool.usable,
        rewrites=tuple(rewrites),
        runnable={name: ops for name, ops in runnable.items() if ops or name == "eager"},
        settings={name: backend.settings for name, backend in BACKENDS.items()},
        engine_backends={spec.name: frozenset({"eager"}) for spec in specs},
        max_threads=num_cores,
    )
