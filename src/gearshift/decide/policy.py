"""The seam between what is seen and what is decided.

A policy sees snapshots and proposes; the guard decides whether that happens.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Protocol

from gearshift.decide.rests import REFUSED_S, Rests
from gearshift.ir.snapshot import Situation, Snapshot
from gearshift.plan.plan import Plan

REFUSED, NOT_NOW = "refused", "not now"
CHANGED, TOO_SLOW = "the situation changed", "too slow"
MAX_REFUSALS = 2
SPLITTING = DQN, GREEDY, SHARE = ("dqn", "greedy", "share")
"""Policies that choose how the model is divided over two engines."""
PPO = "ppo"
"""The one that chooses steps of recurrent layers."""
POLICIES = ("bandit", "keep", "proportional", "rules", *SPLITTING, PPO)


class How(StrEnum):
    ADOPT = "adopt"
    """Serve on it: it is known to be good in this situation."""
    TRY = "try"
    """Let it take turns with the plan in force, within the exploration budget."""
    STAND_BY = "stand by"
    """Build it, for a situation that may come."""
    MEASURE = "measure"
    """Time its regions, each by itself, beside the calls; they need not make up the model."""


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
class Compared:
    """What taking turns told of a plan's time."""

    other: str
    times_as_fast: float
    calls: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """What became of a proposal."""

    plan: str
    how: How
    kept: bool
    why: str
    situation: Situation | None = None
    at_s: float = 0.0
    reason: str = ""
    """Why it was proposed."""
    predicted_gain: float | None = None
    measured_gain: float | None = None
    compared: Compared | None = None

    @property
    def refused(self) -> bool:
        """For good."""
        return not self.kept and self.why.startswith(REFUSED)

    @property
    def put_off(self) -> bool:
        return not self.kept and self.why.startswith(NOT_NOW)


@dataclass(slots=True, kw_only=True)
class Options:
    """What a policy may choose from: to go to each of these plans is a move. Those masked are
    there, so that a move keeps its place among them, but must not be chosen."""

    plans: Mapping[str, Plan]
    """Legal on this machine for this model, by fingerprint."""
    num_cores: int
    now_s: float = 0.0
    """When this is asked."""
    refusals: dict[str, int] = field(default_factory=dict)
    rests: Rests = field(default_factory=Rests)

    @property
    def mask(self) -> tuple[bool, ...]:
        """For each plan, whether it may be chosen."""
        return tuple(self.refusals.get(f, 0) < MAX_REFUSALS for f in self.plans)

    @property
    def allowed(self) -> dict[str, Plan]:
        """Those not masked, and not at rest."""
        both = zip(self.plans.items(), self.mask, strict=True)
        return {f: plan for (f, plan), may in both if may and not self.rests(f, self.now_s)}

    def heed(self, outcome: Outcome) -> None:
        """What could not be made ready rests; what was refused too often, cannot be built or is
        wrong: it is masked."""
        if outcome.refused or outcome.put_off:
            self.rests.add(outcome.plan, self.now_s, REFUSED_S)
        if outcome.refused:
            self.refusals[outcome.plan] = self.refusals.get(outcome.plan, 0) + 1


class Policy(Protocol):
    name: str

    def propose(self, snapshot: Snapshot, options: Options) -> Proposal | None: ...

    def learn(self, outcome: Outcome) -> None: ...
