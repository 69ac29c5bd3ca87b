"""The rows a store keeps, as data: what was measured, under which key.

Must not know SQL, files or locks.
"""

from dataclasses import dataclass
from math import isfinite

from gearshift.errors import PlanError
from gearshift.ir.graph import Graph
from gearshift.ir.measurement import Metric
from gearshift.observe.store.latency import Latency
from gearshift.plan.decision import Decision
from gearshift.plan.plan import Plan
from gearshift.plan.text import loads


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanKey:
    """Where a whole plan was timed."""

    machine: str
    versions: str
    graph: str
    """Identity of the graph by content."""
    signature: str
    context: str = ""
    """What else was going on, such as `quiet` or a busy core."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanRow:
    key: PlanKey
    fingerprint: str
    text: str
    latency: Latency
    max_error: float | None
    seen_at_s: float

    def plan(self, graph: Graph) -> Plan | None:
        """The plan, or None if it does not fit this graph: never another one."""
        try:
            plan = loads(self.text, graph)
        except PlanError:
            return None
        return plan if plan.fingerprint == self.fingerprint else None


@dataclass(frozen=True, slots=True, kw_only=True)
class RegionKey:
    """Where one region was timed, and how it was built."""

    machine: str
    versions: str
    region: str
    """Identity of the region by content."""
    signature: str
    engine: str
    rewrite: str
    """Backend and settings as text, such as `onnxruntime x2`."""
    context: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class RegionRow:
    key: RegionKey
    latency: Latency
    held_bytes: Metric
    build_s: float | None
    max_error: float | None
    seen_at_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class DecisionRow:
    machine: str
    graph: str
    decision: Decision


def is_amount(value: float | None) -> bool:
    """Something that can be measured, or None for what was not."""
    return value is None or (isinstance(value, int | float) and isfinite(value) and value >= 0)
