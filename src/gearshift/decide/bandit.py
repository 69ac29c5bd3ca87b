"""A contextual bandit: recognises the situation, re-uses what is known there, tries what is not.

The situation is the context, plans are the arms; an arm's value is its estimated cost, and what may
be better than the best known is tried once, most hopeful first.
"""

from collections.abc import Callable

from gearshift.decide.policy import How, Options, Outcome, Proposal
from gearshift.ir.snapshot import Situation, Snapshot
from gearshift.plan.plan import Plan
from gearshift.predict.table import Table

CLEARLY = 0.97
"""Only what takes less than this share of the other's time is better."""
Score = Callable[[Plan, float], float]


class Bandit:
    name = "bandit"

    def __init__(self, table: Table, score: Score) -> None:
        """The table is kept by others; `score` weighs a plan's time with whatever else the
        objective asks for."""
        self.table, self.score = table, score
        self.standing: set[str] = set()

    def propose(self, snapshot: Snapshot, options: Options) -> Proposal | None:
        situation = snapshot.situation
        if situation is None or snapshot.trial is not None:
            return None
        usable = options.allowed
        return (
            self._best_known(snapshot, situation, usable)
            or self._most_hopeful(snapshot, situation, usable)
            or self._for_later(snapshot, situation, usable)
        )

    def learn(self, outcome: Outcome) -> None:
        if outcome.how is How.STAND_BY:
            self.standing.add(outcome.plan)

    def _costs(self, situation: Situation, plans: dict[str, Plan]) -> dict[str, float]:
        found = {f: self.table.measured(situation, f) for f in plans}
        return {f: self.score(plans[f], e.mean_s) for f, e in found.items() if e is not None}

    def _best_known(
        self, snapshot: Snapshot, situation: Situation, plans: dict[str, Plan]
    ) -> Proposal | None:
        costs = self._costs(situation, plans)
        if not costs:
            return None
        best = min(costs, key=lambda f: costs[f])
        current = costs.get(snapshot.plan)
        if best == snapshot.plan or (current is not None and costs[best] > CLEARLY * current):
            return None
        best_s = self.table.measured(situation, best)
        current_s = self.table.measured(situation, snapshot.plan)
        assert best_s is not None
        return Proposal(
            plan=plans[best],
            how=How.ADOPT,
            reason=f"known to be the best for {situation}, from {best_s.count} calls",
            predicted_s=best_s.mean_s,
            current_s=None if current_s is None else current_s.mean_s,
        )

    def _most_hopeful(
        self, snapshot: Snapshot, situation: Situation, plans: dict[str, Plan]
    ) -> Proposal | None:
        current = self.table.measured(situation, snapshot.plan)
        if current is None:
            return None
        costs = self._costs(situation, plans)
        best = min(costs.values(), default=float("inf"))
        hopes = {}
        for fingerprint, plan in plans.items():
            estimate = self.table.estimate(plan, situation, plans)
            if fingerprint not in costs and estimate is not None:
                hopes[fingerprint] = (self.score(plan, estimate.hopeful_s), estimate)
        if not hopes:
            return None
        chosen = min(hopes, key=lambda f: hopes[f][0])
        hope, estimate = hopes[chosen]
        if hope > CLEARLY * best:
            return None
        return Proposal(
            plan=plans[chosen],
            how=How.TRY,
            reason=f"never measured for {situation}; may be better",
            predicted_s=estimate.mean_s,
            current_s=current.mean_s,
        )

    def _for_later(
        self, snapshot: Snapshot, situation: Situation, plans: dict[str, Plan]
    ) -> Proposal | None:
        """The best plan of another situation with these sizes."""
        for other in self.table.rows:
            if other.signature != situation.signature or other == situation:
                continue
            costs = self._costs(other, plans)
            best = min(costs, key=lambda f: costs[f], default=snapshot.plan)
            if best != snapshot.plan and best not in self.standing:
                reason = f"known to be the best for {other}"
                return Proposal(plan=plans[best], how=How.STAND_BY, reason=reason)
        return None
