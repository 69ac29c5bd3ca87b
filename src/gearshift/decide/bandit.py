"""A contextual bandit: recognises the situation, re-uses what is known there, tries what is not.

The situation is the context, plans are the arms; an arm's value is its estimated cost, and what may
be better than the best known is tried, most hopeful first.
"""

from collections.abc import Callable, Mapping

from gearshift.decide.drift import Drift
from gearshift.decide.losers import REST_S, Losers
from gearshift.decide.policy import How, Options, Outcome, Proposal
from gearshift.decide.regions.former import Former
from gearshift.decide.rests import Rests
from gearshift.ir.roofline import Roofline
from gearshift.ir.snapshot import Situation, Snapshot
from gearshift.plan.plan import Plan
from gearshift.predict.cost_model import CostModel

CLEARLY = 0.97
"""Only what takes less than this share of the other's time is better."""
BY_FAR = 0.6
"""What needs no build and may take less than this share of the time of the plan in force is tried
before anything that does: builds take long where all is slow."""
ALIKE = 1.08
"""What takes no more than so many times the least is about as good."""
SURELY = 1.15
"""Only what the other takes so many times longer than surely is, even if all is fresh."""
RIVAL = 1.15
"""What takes no more than so many times what the plan in force does takes turns with it once: each
was measured at a time of its own, and a slow minute looks the same on both."""
SLOW, SLOW_S = 1.1, 10.0
"""If what is known well takes so many times longer than usual for so much time of calls, it may not
be the minute."""
MAX_VISITED, MAX_STANDING = 16, 2
"""So many plans are kept ready for other situations."""
Score = Callable[[Situation, Plan, float], float]


class Bandit:
    name = "bandit"

    def __init__(
        self,
        model: CostModel,
        score: Score,
        former: Former | None = None,
        roofline: Callable[[], Roofline | None] = lambda: None,
    ) -> None:
        """The model is taught by others; `score` weighs a plan's time with whatever else the
        objective asks for. `former` forms regions anew where nothing else is left to try."""
        self.model, self.score = model, score
        self.former, self._roofline = former, roofline
        self.now_s = 0.0
        self.drift = Drift()
        self.visited: list[Situation] = []
        """The last one last."""
        self._slow_s = 0.0
        """Time of calls since the machine was last about as fast as usual."""
        self.losers = Losers()
        self.stood_by = Rests()
        self._met: set[tuple[Situation | None, frozenset[str]]] = set()
        """Plans that took turns with each other."""

    def propose(self, snapshot: Snapshot, options: Options) -> Proposal | None:
        situation, self.now_s = snapshot.situation, snapshot.at_s
        self.drift.see(snapshot)
        self._slow_s = self._slow_s + snapshot.served_s if self.model.minute >= SLOW else 0.0
        if self.former is not None:
            self.former.see(snapshot)
        usable = options.allowed
        if situation is None:
            return self._for_later(snapshot, None, usable)
        if snapshot.trial is not None:
            return None
        before = [s for s in self.visited if s != situation]
        self.visited = [*before[-MAX_VISITED:], situation]
        return (
            self._best_known(snapshot, situation, usable)
            or self._for_later(snapshot, situation, usable)
            or self._most_hopeful(snapshot, situation, usable)
            or self._against_rival(snapshot, situation, usable)
            or self._once_better(snapshot, situation, usable)
            or self._formed_anew(snapshot, situation, options.plans)
        )

    def learn(self, outcome: Outcome) -> None:
        """What did not win its trial rests, longer each time; what was made to stand by, too: if it
        had to go again, there is no room for it."""
        if outcome.how is How.MEASURE and self.former is not None:
            self.former.learn(outcome)
        elif outcome.how is How.STAND_BY:
            self.stood_by.add(outcome.plan, self.now_s, REST_S)
        else:
            self.losers.learn(outcome, self.now_s)
            if outcome.compared is not None:
                pair = frozenset((outcome.plan, outcome.compared.other))
                self._met.add((outcome.situation, pair))

    def _rests(self, situation: Situation, plan: str) -> bool:
        return self.losers.rests(situation, plan, self.now_s)

    def _costs(self, situation: Situation, plans: dict[str, Plan]) -> dict[str, float]:
        found = {f: self.model.measured(situation, f) for f in plans}
        known = {f: e.mean_s for f, e in found.items() if e is not None}
        return {f: self.score(situation, plans[f], mean_s) for f, mean_s in known.items()}

    def _best_known(
        self, snapshot: Snapshot, situation: Situation, plans: dict[str, Plan]
    ) -> Proposal | None:
        """Surely better: adopted. Better by a little: tried, call by call in turns."""
        costs = self._costs(situation, plans)
        if not costs:
            return None
        best = min(costs, key=lambda f: costs[f])
        current = costs.get(snapshot.plan)
        if best == snapshot.plan or (current is not None and costs[best] > CLEARLY * current):
            return None
        clearly = self.drift.beyond(self.now_s, SURELY)
        surely = current is None or clearly * costs[best] < current
        if surely:
            best = self._most_seen(situation, costs)
        elif self._rests(situation, best):
            return None
        best_s = self.model.measured(situation, best)
        current_s = self.model.measured(situation, snapshot.plan)
        assert best_s is not None
        known = "known" if surely else "seems"
        return Proposal(
            plan=plans[best],
            how=How.ADOPT if surely else How.TRY,
            reason=f"{known} to be the best for {situation}, from {best_s.count} calls",
            predicted_s=best_s.mean_s,
            current_s=None if current_s is None else current_s.mean_s,
        )

    def _most_seen(self, situation: Situation, costs: Mapping[str, float]) -> str:
        """Of those about as good as the best, the one known from most calls: the best of several
        that are known from a few would be one that was lucky."""
        least = min(costs.values())
        found = {f: self.model.measured(situation, f) for f in costs if costs[f] <= ALIKE * least}
        return max(found, key=lambda f: (0 if (e := found[f]) is None else e.count, -costs[f]))

    def _most_hopeful(
        self, snapshot: Snapshot, situation: Situation, plans: dict[str, Plan]
    ) -> Proposal | None:
        current = self.model.measured(situation, snapshot.plan)
        if current is None:
            return None
        costs = self._costs(situation, plans)
        best = min(costs.values(), default=float("inf"))
        hopes = {}
        for fingerprint, plan in plans.items():
            must_build = fingerprint not in snapshot.ready
            if fingerprint in costs or self._rests(situation, fingerprint):
                continue
            if must_build and not snapshot.may_build:
                continue
            estimate = self.model.estimate(plan, situation, plans)
            if estimate is not None:
                hope = self.score(situation, plan, estimate.hopeful_s)
                hopes[fingerprint] = (hope, estimate)
        if not hopes:
            return None
        now = costs.get(snapshot.plan, best)
        at_once = {f for f in hopes if f in snapshot.ready and hopes[f][0] < BY_FAR * now}
        chosen = min(at_once or hopes, key=lambda f: hopes[f][0])
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

    def _rivals(
        self, snapshot: Snapshot, situation: Situation, plans: dict[str, Plan]
    ) -> dict[str, float]:
        """What each is known to cost."""
        costs = self._costs(situation, plans)
        current = costs.pop(snapshot.plan, None)
        return {
            plan: cost
            for plan, cost in costs.items()
            if current is not None
            and cost <= RIVAL * current
            and (situation, frozenset((plan, snapshot.plan))) not in self._met
            and not self._rests(situation, plan)
        }

    def _against_rival(
        self, snapshot: Snapshot, situation: Situation, plans: dict[str, Plan]
    ) -> Proposal | None:
        rivals = self._rivals(snapshot, situation, plans)
        ready = [plan for plan in rivals if plan in snapshot.ready]
        best = min(ready, key=lambda plan: rivals[plan], default=None)
        if best is None:
            return None
        new, old = (self.model.measured(situation, plan) for plan in (best, snapshot.plan))
        return Proposal(
            plan=plans[best],
            how=How.TRY,
            reason=f"about as good for {situation}, as far as is known",
            predicted_s=None if new is None else new.mean_s,
            current_s=None if old is None else old.mean_s,
        )

    def _once_better(
        self, snapshot: Snapshot, situation: Situation, plans: dict[str, Plan]
    ) -> Proposal | None:
        """What moves all plans alike is the minute's doing. If it lasts, it may be the plan's: the
        one that used to take less than this one does now takes turns with it."""
        current = self.model.measured(situation, snapshot.plan)
        if current is None or self._slow_s < SLOW_S:
            return None
        costs = self._costs(situation, plans)
        usual = {f: cost / self.model.minute for f, cost in costs.items() if f != snapshot.plan}
        usual = {f: cost for f, cost in usual.items() if not self._rests(situation, f)}
        best = min(usual, key=lambda f: usual[f], default=None)
        now = costs.get(snapshot.plan)
        if best is None or now is None or usual[best] > CLEARLY * now:
            return None
        return Proposal(
            plan=plans[best],
            how=How.TRY,
            reason=f"used to take less for {situation} than the plan in force does now",
            predicted_s=current.mean_s,
            current_s=current.mean_s,
        )

    def _formed_anew(
        self, snapshot: Snapshot, situation: Situation, plans: Mapping[str, Plan]
    ) -> Proposal | None:
        plan, roofline = plans.get(snapshot.plan), self._roofline()
        current = self.model.measured(situation, snapshot.plan)
        if self.former is None or plan is None or roofline is None or current is None:
            return None
        return self.former.propose(plan, current.mean_s, snapshot, roofline, self._is_old)

    def _is_old(self, situation: Situation, plan: str) -> bool:
        """Whether it lost its trial lately, or is known here as well as any."""
        known = self.model.measured(situation, plan) is not None
        return known or self._rests(situation, plan)

    def _for_later(
        self, snapshot: Snapshot, situation: Situation | None, plans: dict[str, Plan]
    ) -> Proposal | None:
        """The best plans of the situations that were here last, or that the store tells of."""
        if not snapshot.may_build:
            return None
        told = [s for s in self.model.situations() if s not in self.visited]
        others = [s for s in (*reversed(self.visited), *told) if s != situation]
        if situation is not None:
            others = [s for s in others if s.signature == situation.signature]
        for other in others[:MAX_STANDING]:
            costs = self._costs(other, plans)
            best = min(costs, key=lambda f: costs[f], default=snapshot.plan)
            waits = self.stood_by(best, self.now_s)
            if best != snapshot.plan and best not in snapshot.ready and not waits:
                reason = f"known to be the best for {other}"
                return Proposal(plan=plans[best], how=How.STAND_BY, reason=reason)
        return None if situation is None else self._rival_for_later(snapshot, situation, plans)

    def _rival_for_later(
        self, snapshot: Snapshot, situation: Situation, plans: dict[str, Plan]
    ) -> Proposal | None:
        """One that can take turns with the plan in force, if none is ready."""
        rivals = self._rivals(snapshot, situation, plans)
        best = min(rivals, key=lambda plan: rivals[plan], default=None)
        if best is None or any(plan in snapshot.ready for plan in rivals):
            return None
        if self.stood_by(best, self.now_s):
            return None
        reason = f"about as good for {situation}, as far as is known"
        return Proposal(plan=plans[best], how=How.STAND_BY, reason=reason)
