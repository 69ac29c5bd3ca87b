"""Runs a PyTorch model and keeps changing how it runs, while its outputs stay the same."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from gearshift.act.verify import Tolerance
    from gearshift.decide.guard import Limits
    from gearshift.errors import GearshiftError
    from gearshift.plan import Objective, Plan, Region, Rewrite, Split, SplitWeights
    from gearshift.plan.decision import Decision
    from gearshift.runtime import Runtime, adapt

_HOME = {
    "Decision": "gearshift.plan.decision",
    "GearshiftError": "gearshift.errors",
    "Limits": "gearshift.decide.guard",
    "Objective": "gearshift.plan",
    "Plan": "gearshift.plan",
    "Region": "gearshift.plan",
    "Rewrite": "gearshift.plan",
    "Runtime": "gearshift.runtime",
    "Split": "gearshift.plan",
    "SplitWeights": "gearshift.plan",
    "Tolerance": "gearshift.act.verify",
    "adapt": "gearshift.runtime",
}

__all__ = [
    "Decision",
    "GearshiftError",
    "Limits",
    "Objective",
    "Plan",
    "Region",
    "Rewrite",
    "Runtime",
    "Split",
    "SplitWeights",
    "Tolerance",
    "adapt",
]


def __getattr__(name: str) -> Any:
    """Loaded when first asked for: the control plane's process needs none of torch."""
    if name not in _HOME:
        raise AttributeError(f"module 'gearshift' has no attribute {name!r}")
    value = globals()[name] = getattr(import_module(_HOME[name]), name)
    return value


def __dir__() -> list[str]:
    return sorted(__all__)
