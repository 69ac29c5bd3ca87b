"""What was decided, and why: the record that explanations and reports are made of.

Must not know who decides.
"""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Decision:
    """One thing that was decided, why, and what came of it."""

    at_s: float
    plan: str
    reason: str
    outcome: str
