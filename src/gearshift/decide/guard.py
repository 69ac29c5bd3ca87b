"""The last word on any decision: what may be done now, what must be undone.

Trusts no policy: it goes by its own record of what was measured. Must not know how plans are run.
"""

import math
from collections import deque
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass

from gearshift.decide.drift import Drift
from gearshift.decide.policy import NOT_NOW, REFUSED, How, Proposal
from gearshift.decide.rests import REFUSED_S, Rests
from gearshift.decide.reward import Costs
from gearshift.errors import UsageError
from gearshift.ir.measurement import Source
from gearshift.ir.snapshot import Sample, Situation, Snapshot
from gearshift.plan.plan import Plan
from gearshift.predict.cost_model import CostModel
from gearshift.predict.estimate import Estimate

MIN_CREDIT_S, MIN_CALLS = 1e-3, 8
"""A trial begins only if it may lose what so many calls are foreseen to lose: a shorter one would
tell nothing."""
USUAL_CALLS = 3
RECENT_CALLS, SLO_CALLS, SLO_SHARE = 100, 3, 0.05
"""So many calls that take too long may be anybody's hiccup."""
BUILD_HEAD_S, PROMISING = 20.0, 1.25
"""So long plans may be built before their share of the time counts, as long as one is foreseen to
take no more than so many times what the best one known here takes. Not where an earlier start has
done so: the next one is not disturbed again."""
MEASURE_HEAD_S, MEASURE_SHARE = 20.0, 0.25
"""So long regions that fall short may be measured before their share of the time counts as that of
builds does; until then it is a larger one, so that calls beside it are not slowed down for long."""
SURE = 2.0
"""Standard deviations of the mean."""
CHANGED_DWELL = 0.3
"""The share of the dwell time that a plan stays even if the situation changes."""
MAX_LOST = 3
"""So often the same newcomer used up its credit, and who proposes it is not heard for a while."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    explore_share: float = 0.02
    """Of the time of capture, rehearsal and all calls, what trying unknown plans may cost."""
    build_share: float = 0.03
    """Of the time of all calls, how long plans may be built in the background, once none is
    foreseen to be better."""
    dwell_s: float = 1.0
    """A plan stays at least so long in an unchanged situation."""
    switches_per_minute: int = 30
    """However the situations change."""
    slower: float = 1.1
    """A plan that takes so many times what another is known to take is rolled back if the
    situation has just changed; later it takes more to be sure, and the two take turns first."""
    slo_s: float | None = None
    """So long a call may take; if more than one in twenty of a newcomer's takes longer, and more
    than of the plan in force, its trial stops at once, and nothing is tried for a while."""
    setup_s: float = 6.0
    """About so long `adapt` may make plans ready and time them on the example, after the capture;
    up to five times as long for a model whose own calls are slow; and half as long again beside a
    stand-in for a neighbour, on a quiet machine of several cores. 0: it returns at once, and all of
    that happens beside the first calls."""
    freeze_s: float = 30.0
    """Nothing is tried for so long after a newcomer did harm; twice as long each further time that
    one used up its credit again and again."""

    def __post_init__(self) -> None:
        sound = {
            "explore_share": 0 <= self.explore_share <= 1,
            "build_share": 0 <= self.build_share <= 1,
            "dwell_s": self.dwell_s >= 0,
            "switches_per_minute": type(self.switches_per_minute) is int
            and self.switches_per_minute >= 1,
            "slower": self.slower > 1,
            "slo_s": self.slo_s is None or self.slo_s > 0,
            "setup_s": 0 <= self.setup_s < math.inf,
            "freeze_s": self.freeze_s > 0,
        }
        wrong = [name for name, good in sound.items() if not good]
        if wrong:
            raise UsageError(f"Limits: {wrong[0]}={getattr(self, wrong[0])!r} makes no sense")


class Guard:
    def __init__(
        self,
        model: CostModel,
        plans: Mapping[str, Plan],
        costs: Costs,
        limits: Limits,
        *,
        before_s: float = 0.0,
    ) -> None:
        """`before_s` is the time that went by before the first call: it counts for exploration, so
        that there is something to try with from the start."""
        self.model, self.costs, self.limits = model, costs, limits
        self.plans = dict(plans)
        self.before_s, self.served_s, self.spent_s = before_s, 0.0, 0.0
        self.building_s = self.measuring_s = 0.0
        self._recalled: set[Situation] = set()
        self.frozen_until_s = -math.inf
        self._rests = Rests()
        self._drift = Drift()
        self._lost: dict[str, int] = {}
        self._freezes = 0
        self._switches: deque[float] = deque(maxlen=limits.switches_per_minute)
        self._since: Situation | None = None
        self._recent: deque[float] = deque(maxlen=RECENT_CALLS)
        self._newcomer_s: deque[float] = deque(maxlen=RECENT_CALLS)

    def know(self, plan: Plan) -> None:
        """One that was not among the candidates."""
        self.plans.setdefault(plan.fingerprint, plan)

    @property
    def credit_s(self) -> float:
        """What exploration may still cost."""
        return self.limits.explore_share * (self.before_s + self.served_s) - self.spent_s

    def note(self, snapshot: Snapshot) -> None:
        self.costs.note(snapshot, self.plans)
        self._drift.see(snapshot)
        if snapshot.trial is None:
            self._newcomer_s.clear()
        for sample in snapshot.samples:
            self.model.add(sample)
            mine = sample.plan == snapshot.trial
            (self._newcomer_s if mine else self._recent).extend(sample.seconds)
        self.served_s += snapshot.served_s
        if snapshot.trial is not None and self._breached():
            self.frozen_until_s = snapshot.at_s + self.limits.freeze_s

    def recall(self, sample: Sample) -> None:
        """What an earlier start measured."""
        self.model.add(sample)
        self._recalled.add(sample.situation)

    def is_frozen(self, snapshot: Snapshot) -> bool:
        """Whether nothing may be tried."""
        return snapshot.at_s < self.frozen_until_s

    def _breached(self) -> bool:
        slo_s = self.limits.slo_s
        if slo_s is None or sum(seconds > slo_s for seconds in self._newcomer_s) < SLO_CALLS:
            return False
        now, usually = (_share_beyond(slo_s, s) for s in (self._newcomer_s, self._recent))
        return now > max(SLO_SHARE, usually)

    def costs_of(self, sample: Sample) -> list[float]:
        """A plan of the user's own, which is none of ours, by its time alone."""
        plan = self.plans.get(sample.plan)
        if plan is None:
            return list(sample.seconds)
        return [self.costs.of(sample.situation, plan, seconds) for seconds in sample.seconds]

    def usual_s(self, snapshot: Snapshot) -> float | None:
        """What a call takes on the plan in force, by our own record."""
        if snapshot.situation is None:
            return None
        seen = self.model.measured(snapshot.situation, snapshot.plan, least=USUAL_CALLS)
        return None if seen is None else seen.mean_s

    def built(self, seconds: float) -> None:
        """A plan was made ready; so long it took."""
        self.building_s += seconds

    def measured(self, seconds: float) -> None:
        """Regions were measured by themselves; so long it took."""
        self.measuring_s += seconds

    def review(
        self, proposal: Proposal, snapshot: Snapshot, why_illegal: Callable[[Plan], str | None]
    ) -> str | None:
        """Why this may not happen now; None if it may."""
        if proposal.how is How.MEASURE:
            later_s = MEASURE_HEAD_S + self.limits.build_share * self.served_s
            if self.measuring_s > min(MEASURE_SHARE * self.served_s, later_s):
                return f"{NOT_NOW}: regions were measured for long enough"
            resting = self._rests(proposal.plan.fingerprint, snapshot.at_s)
            return f"{NOT_NOW}: it could not be measured a moment ago" if resting else None
        reason = why_illegal(proposal.plan)
        if reason is not None:
            return f"{REFUSED}: {reason}"
        self.know(proposal.plan)
        times = (proposal.predicted_s, proposal.current_s)
        if any(t is not None and not (math.isfinite(t) and t > 0) for t in times):
            return f"{NOT_NOW}: predicts {proposal.predicted_s} s, now {proposal.current_s} s"
        if self._rests(proposal.plan.fingerprint, snapshot.at_s):
            return f"{NOT_NOW}: it could not be made ready a moment ago"
        if proposal.plan.fingerprint == snapshot.plan:
            return f"{NOT_NOW}: already in force"
        if not self.is_known(proposal, snapshot):
            if self.is_frozen(snapshot):
                return f"{NOT_NOW}: trying did harm, so nothing is tried for a while"
            is_ready = proposal.plan.fingerprint in snapshot.ready
            if not is_ready and not self.may_build(snapshot.situation):
                return f"{NOT_NOW}: plans were built for long enough"
            if proposal.how is How.STAND_BY:
                return None
            usual_s = self.usual_s(snapshot)
            if usual_s is None:
                return f"{NOT_NOW}: too little is known of the plan in force"
            if self.credit_s < _least_s(proposal, usual_s):
                return f"{NOT_NOW}: the exploration budget is spent"
        return self.too_soon(snapshot, trying=proposal.how is How.TRY)

    def may_build(self, situation: Situation | None) -> bool:
        """Whether there is time left to build what is not known to be better here."""
        beyond_s = self.building_s - self.limits.build_share * self.served_s
        if beyond_s <= 0 or beyond_s > BUILD_HEAD_S or situation in self._recalled:
            return beyond_s <= 0
        return situation is None or self._promising(situation)

    def _promising(self, situation: Situation) -> bool:
        """Whether a plan never measured here is foreseen to be as good as the best that was."""
        found = {f: self.model.measured(situation, f) for f in self.plans}
        known = {f: e.mean_s for f, e in found.items() if e is not None}
        others = [plan for f, plan in self.plans.items() if f not in known]
        foreseen = [self.model.estimate(plan, situation, self.plans) for plan in others]
        most_s = PROMISING * min(known.values(), default=math.inf)
        return not known or any(e is not None and e.mean_s <= most_s for e in foreseen)

    def refused(self, plan: str, at_s: float) -> None:
        """It could not be made ready."""
        self._rests.add(plan, at_s, REFUSED_S)

    def is_known(self, proposal: Proposal, snapshot: Snapshot) -> bool:
        """Whether our own record says that it is better here: then it need not be tried first. A
        small difference may be the time of day: taking turns tells."""
        situation, in_force = snapshot.situation, self.plans.get(snapshot.plan)
        if proposal.how is not How.ADOPT or situation is None or in_force is None:
            return False
        new = self.model.measured(situation, proposal.plan.fingerprint)
        old = self.model.estimate(in_force, situation, self.plans)
        if new is None or old is None:
            return False
        clearly = 1.0 if old.source is Source.MODELLED else self._clearly(snapshot)
        new_cost = self.costs.of(situation, proposal.plan, new.mean_s)
        return clearly * new_cost < self.costs.of(situation, in_force, old.at_worst_s)

    def _clearly(self, snapshot: Snapshot) -> float:
        return self._drift.beyond(snapshot.at_s, self.limits.slower)

    def is_slower(self, plan: Plan, snapshot: Snapshot) -> bool:
        """Whether by our own record this plan takes longer here than the one in force, or would
        even if that did worse than is foreseen."""
        situation, in_force = snapshot.situation, self.plans.get(snapshot.plan)
        if situation is None or in_force is None:
            return False
        new = self.model.estimate(plan, situation, self.plans)
        old = self.model.estimate(in_force, situation, self.plans)
        if new is None or old is None:
            return False
        costs = self.costs
        return costs.of(situation, plan, new.mean_s) > costs.of(situation, in_force, old.at_worst_s)

    def better_known(
        self, snapshot: Snapshot, clearly: float | None = None
    ) -> tuple[Plan, Estimate, float] | None:
        """What to go back to if the plan in force is clearly slower, what is known of that, and how
        many times slower the one in force is. What is clear depends on how long ago both were
        measured, unless it is said."""
        situation = snapshot.situation
        if situation is None or snapshot.trial is not None or self.too_soon(snapshot):
            return None
        now = self.model.measured(situation, snapshot.plan)
        found = {f: self.model.measured(situation, f) for f in self.plans}
        known = {f: e for f, e in found.items() if e and not self._rests(f, snapshot.at_s)}
        of = self.costs.of
        costs = {f: of(situation, self.plans[f], e.mean_s) for f, e in known.items()}
        if now is None or snapshot.plan not in costs:
            return None
        best = min(costs, key=lambda f: costs[f])
        ratio = costs[snapshot.plan] / costs[best]
        clearly = self._clearly(snapshot) if clearly is None else clearly
        sure = ratio * (1 - SURE * now.deviation_s / now.mean_s) > clearly
        return (self.plans[best], known[best], ratio) if sure else None

    def switched(self, snapshot: Snapshot) -> None:
        self._switches.append(snapshot.at_s)
        self._since = snapshot.situation

    def tried(self, plan: str, *, cost_s: float, too_slow: bool, at_s: float) -> None:
        """A trial is over; what it cost beyond the usual is paid for."""
        self.spent_s += cost_s
        self._lost[plan] = self._lost.get(plan, 0) + 1 if too_slow else 0
        if self._lost[plan] >= MAX_LOST:
            self.frozen_until_s = at_s + self.limits.freeze_s * 2**self._freezes
            self._freezes = min(self._freezes + 1, 6)
            self._lost[plan] = 0

    def too_soon(self, snapshot: Snapshot, *, trying: bool = False) -> str | None:
        """Building and trying a plan takes time of its own before anything is switched."""
        if not self._switches:
            return None
        full = len(self._switches) == self._switches.maxlen
        if full and snapshot.at_s - self._switches[0] < 60:
            return f"{NOT_NOW}: the switch budget of this minute is spent"
        settled = self._since == snapshot.situation and not trying
        dwell_s = self.limits.dwell_s * (1 if settled else CHANGED_DWELL)
        if snapshot.at_s - self._switches[-1] < dwell_s:
            return f"{NOT_NOW}: a plan stays at least {self.limits.dwell_s:g} s"
        return None


def _share_beyond(slo_s: float, calls: Collection[float]) -> float:
    return sum(seconds > slo_s for seconds in calls) / len(calls) if calls else 0.0


def _least_s(proposal: Proposal, usual_s: float) -> float:
    if proposal.predicted_s is None:
        return MIN_CREDIT_S
    return max(MIN_CREDIT_S, MIN_CALLS * (proposal.predicted_s - usual_s))
