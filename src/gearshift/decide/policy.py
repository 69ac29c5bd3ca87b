"""The seam between what is seen and what is decided.

A policy sees snapshots and proposes; the guard decides whether that happens.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Protocol

from gearshift.ir.snapshot import Situation, Snapshot
from gearshift.plan.plan import Plan


class How(StrEnum):
    ADOPT = "adopt"
    """Serve on it: it is known to be good in this situation."""
    TRY = "try"
    """Let it take turns with the plan in force, within the exploration budget."""
    STAND_BY = "stand by"
    """Build it, for a situation that may come."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Proposal:
    plan: Plan
    how: How
    reason: str
    predicted_s: float | None = None
    current_s: float | None = None
    """What the plan in force takes in the same situation."""

    @property
    def gain(self) -> float | None:
        """Old time over new, as foreseen."""
        if self.predicted_s is None or self.current_s is None or self.predicted_s <= 0:
            return None
        return self.current_s / self.predicted_s


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """What became of a proposal."""

    plan: str
    how: How
    kept: bool
    why: str
    situation: Situation | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """The plans that may be chosen: legal on this machine for this model, by fingerprint."""

    plans: Mapping[str, Plan]
    num_cores: int


class Policy(Protocol):
    name: str

    def propose(self, snapshot: Snapshot, options: Options) -> Proposal | None: ...

    def learn(self, outcome: Outcome) -> None: ...
