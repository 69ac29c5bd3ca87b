"""The knob `place`: which engine runs a region.

Must not know what an engine is beyond its name.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from gearshift.ir.graph import Graph
from gearshift.ir.topology import members

if TYPE_CHECKING:
    from gearshift.plan.legal import Space
    from gearshift.plan.plan import Plan


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    region: str
    engine: str

    def apply(self, plan: "Plan", graph: Graph) -> "Plan":
        old = plan.region(self.region)
        return plan.exchange(
            (old,), (replace(old, engine=self.engine, split=None, unroll=None),), graph
        )


def moves(plan: "Plan", space: "Space") -> Iterator[Place]:
    for region in plan.regions:
        for engine in space.engines:
            if engine != region.engine:
                yield Place(region=region.name, engine=engine)


def why_illegal(plan: "Plan", space: "Space") -> str | None:
    for region in plan.regions:
        for engine in members(region.engine):
            reason = _why_illegal(engine, region.rewrite.backend, space)
            if reason is not None:
                return f"region {region.name}: {reason}"
        if len(set(members(region.engine))) < len(members(region.engine)):
            return f"region {region.name}: an engine is twice in {region.engine}"
    return None


def _why_illegal(engine: str, backend: str, space: "Space") -> str | None:
    if engine not in space.engines:
        return f"no engine {engine!r} here; there are {', '.join(space.engines)}"
    backends = space.engine_backends.get(engine)
    if backends is not None and backend not in backends:
        return f"engine {engine} runs {', '.join(sorted(backends))}, not {backend}"
    return None
