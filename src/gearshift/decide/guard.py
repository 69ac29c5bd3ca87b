"""The last word on any decision: what may be done now, what must be undone.

Trusts no policy: it goes by its own record of what was measured. Must not know how plans are run.
"""

import math
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from gearshift.decide.policy import How, Proposal
from gearshift.ir.snapshot import Situation, Snapshot
from gearshift.plan.plan import Plan
from gearshift.predict.table import Table

MIN_CREDIT_S = 1e-3
SURE = 2.0
"""Standard deviations of the mean."""
CHANGED_DWELL = 0.3
"""The share of the dwell time that a plan stays even if the situation changes."""
MAX_LOST = 3
"""So many newcomers in a row that used up their credit, and the policy is not heard for a while."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    explore_share: float = 0.02
    """Of all time served, what trying unknown plans may cost."""
    dwell_s: float = 1.0
    """A plan stays at least so long in an unchanged situation."""
    switches_per_minute: int = 30
    """However the situations change."""
    slower: float = 1.1
    """A plan that takes so many times what another is known to take is rolled back."""
    freeze_s: float = 30.0
    """A policy that did harm is not heard for so long; twice as long each further time."""


class Guard:
    def __init__(self, table: Table, plans: Mapping[str, Plan], limits: Limits) -> None:
        self.table, self.plans, self.limits = table, plans, limits
        self.served_s = self.spent_s = 0.0
        self.frozen_until_s = -math.inf
        self._lost = self._freezes = 0
        self._switches: deque[float] = deque(maxlen=limits.switches_per_minute)
        self._since: Situation | None = None

    @property
    def credit_s(self) -> float:
        """What exploration may still cost."""
        return self.limits.explore_share * self.served_s - self.spent_s

    def note(self, snapshot: Snapshot) -> None:
        for sample in snapshot.samples:
            self.table.add(sample.situation, sample.plan, sample.seconds)
            self.served_s += sum(sample.seconds)

    def review(
        self, proposal: Proposal, snapshot: Snapshot, why_illegal: Callable[[Plan], str | None]
    ) -> str | None:
        """Why this may not happen now; None if it may."""
        reason = why_illegal(proposal.plan)
        if reason is not None:
            return f"refused: {reason}"
        times = (proposal.predicted_s, proposal.current_s)
        if any(t is not None and not (math.isfinite(t) and t > 0) for t in times):
            return f"refused: predicts {proposal.predicted_s} s, now {proposal.current_s} s"
        if snapshot.at_s < self.frozen_until_s:
            return "refused: the policy did harm and is not heard for a while"
        if proposal.plan.fingerprint == snapshot.plan:
            return "refused: already in force"
        if proposal.how is How.STAND_BY:
            return None
        if not self.is_known(proposal, snapshot) and self.credit_s < MIN_CREDIT_S:
            return "not now: the exploration budget is spent"
        return self._too_soon(snapshot)

    def is_known(self, proposal: Proposal, snapshot: Snapshot) -> bool:
        """Whether our own record says that it is better here: then it need not be tried first."""
        situation, in_force = snapshot.situation, self.plans.get(snapshot.plan)
        if proposal.how is not How.ADOPT or situation is None or in_force is None:
            return False
        new = self.table.measured(situation, proposal.plan.fingerprint)
        old = self.table.estimate(in_force, situation, self.plans)
        return new is not None and old is not None and new.mean_s < old.mean_s

    def better_known(self, snapshot: Snapshot) -> tuple[Plan, float] | None:
        """What to go back to, if the plan in force is clearly slower; and how many times slower."""
        situation = snapshot.situation
        if situation is None or snapshot.trial is not None or self._too_soon(snapshot):
            return None
        now = self.table.measured(situation, snapshot.plan)
        known = [(f, self.table.measured(situation, f)) for f in self.plans]
        times = {f: seen.mean_s for f, seen in known if seen is not None}
        if now is None or not times:
            return None
        best = min(times, key=lambda f: times[f])
        ratio = now.mean_s / times[best]
        sure = now.mean_s - SURE * now.deviation_s > self.limits.slower * times[best]
        return (self.plans[best], ratio) if sure else None

    def switched(self, snapshot: Snapshot) -> None:
        self._switches.append(snapshot.at_s)
        self._since = snapshot.situation

    def tried(self, *, cost_s: float, new_won: bool, used_up: bool, at_s: float) -> None:
        """A trial is over; what it cost beyond the usual is paid for."""
        self.spent_s += cost_s
        self._lost = self._lost + 1 if used_up and not new_won else 0
        if self._lost >= MAX_LOST:
            self.frozen_until_s = at_s + self.limits.freeze_s * 2**self._freezes
            self._freezes, self._lost = min(self._freezes + 1, 6), 0

    def _too_soon(self, snapshot: Snapshot) -> str | None:
        if not self._switches:
            return None
        full = len(self._switches) == self._switches.maxlen
        if full and snapshot.at_s - self._switches[0] < 60:
            return "not now: the switch budget of this minute is spent"
        dwell_s = self.limits.dwell_s * (1 if self._since == snapshot.situation else CHANGED_DWELL)
        if snapshot.at_s - self._switches[-1] < dwell_s:
            return f"not now: a plan stays at least {self.limits.dwell_s:g} s"
        return None
