"""What was seen of a model on a machine, kept for the next start.

Must not know what is decided from it.
"""

from gearshift.observe.store.check import check_store
from gearshift.observe.store.database import Mode
from gearshift.observe.store.latency import Latency
from gearshift.observe.store.machine import (
    cpu_quota,
    machine_fields,
    machine_key,
    versions_key,
)
from gearshift.observe.store.rows import DecisionRow, PlanKey, PlanRow, RegionKey, RegionRow
from gearshift.observe.store.store import FILE, Store, memory_store, open_store

__all__ = [
    "FILE",
    "DecisionRow",
    "Latency",
    "Mode",
    "PlanKey",
    "PlanRow",
    "RegionKey",
    "RegionRow",
    "Store",
    "check_store",
    "cpu_quota",
    "machine_fields",
    "machine_key",
    "memory_store",
    "open_store",
    "versions_key",
]
