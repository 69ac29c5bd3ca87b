"""What the machine does while we run: one hardware abstraction over several sources.

Must not know plans, models or decisions.
"""

from gearshift.observe.hal.check import check_counters
from gearshift.observe.hal.counters import Counters, Description, Readings, Unit
from gearshift.observe.hal.hal import Hal, open_hal
from gearshift.observe.hal.memory_model import Bound, Traffic, model_traffic
from gearshift.observe.hal.null import NullCounters
from gearshift.observe.hal.roofline import measure_roofline

__all__ = [
    "Bound",
    "Counters",
    "Description",
    "Hal",
    "NullCounters",
    "Readings",
    "Traffic",
    "Unit",
    "check_counters",
    "measure_roofline",
    "model_traffic",
    "open_hal",
]
