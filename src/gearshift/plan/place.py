"""The knob `place`: which engine runs a region.

Must not know what an engine is beyond its name.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from gearshift.ir.graph import Graph

if TYPE_CHECKING:
    from gearshift.plan.legal import Space
    from gearshift.plan.plan import Plan


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    region: str
    engine: str

    def apply(self, plan: "Plan", graph: Graph) -> "Plan":
        old = plan.region(self.region)
        return plan.exchange((old,), (replace(old, engine=self.engine),), graph)


def moves(plan: "Plan", space: "Space") -> Iterator[Place]:
    for region in plan.regions:
        for engine in space.engines:
            if engine != region.engine:
                yield Place(region=region.name, engine=engine)


def why_illegal(plan: "Plan", space: "Space") -> str | None:
    for region in plan.regions:
        if region.engine not in space.engines:
            known = ", ".join(space.engines)
            return f"region {region.name}: no engine {region.engine!r} here; there are {known}"
        backends = space.engine_backends.get(region.engine)
        if backends is not None and region.rewrite.backend not in backends:
            allowed = ", ".join(sorted(backends))
            return (
                f"region {region.name}: engine {region.engine} runs {allowed},"
                f" not {region.rewrite.backend}"
            )
    return None
