"""What was decided, and why: the record that explanations and reports are made of.

Must not know who decides.
"""

from dataclasses import dataclass

SERVES = "serves"
TRIAL = "a trial"
"""In place of a plan's name while two take turns."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Decision:
    """One thing that was decided, why, and what came of it."""

    at_s: float
    plan: str
    reason: str
    outcome: str
    predicted_gain: float | None = None
    """Old time over new, as foreseen; above 1 the new plan is faster."""
    measured_gain: float | None = None
    summary: str = ""
    """The plan in a few words, such as `onnxruntime x2`."""
    number: int = 0
    """Counted from 1 over all there were, of which only the last are kept."""

    @property
    def serves(self) -> bool:
        """Whether the plan was put in force."""
        return self.outcome.startswith(SERVES)

    def __str__(self) -> str:
        gains = [
            f"{name} {gain:.2f}x"
            for name, gain in (("predicted", self.predicted_gain), ("measured", self.measured_gain))
            if gain is not None
        ]
        told = f" ({', '.join(gains)})" if gains else ""
        plan = f"{self.summary} ({self.plan})" if self.summary else self.plan
        return f"{self.at_s:8.2f} s  {plan}  {self.reason}: {self.outcome}{told}"
