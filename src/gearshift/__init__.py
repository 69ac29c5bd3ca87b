"""Runs a PyTorch model and keeps changing how it runs, while its outputs stay the same."""

from gearshift.act.verify import Tolerance
from gearshift.errors import GearshiftError
from gearshift.plan import Objective, Plan, Region, Rewrite
from gearshift.plan.decision import Decision
from gearshift.runtime import Runtime, adapt

__all__ = [
    "Decision",
    "GearshiftError",
    "Objective",
    "Plan",
    "Region",
    "Rewrite",
    "Runtime",
    "Tolerance",
    "adapt",
]
