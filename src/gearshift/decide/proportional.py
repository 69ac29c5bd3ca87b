"""Threads in proportion to the cores that others leave free, on the backend in force or the first.

No measurement: a baseline that reacts at once and is often wrong. What lost its trial rests.
"""

from collections.abc import Mapping, Sequence

from gearshift.decide.policy import CHANGED, How, Options, Outcome, Proposal
from gearshift.decide.rests import Rests
from gearshift.ir.snapshot import Snapshot
from gearshift.plan.plan import Plan

REST_S = 30.0


class Proportional:
    name = "proportional"

    def __init__(self) -> None:
        self._losers = Losers()

    def propose(self, snapshot: Snapshot, options: Options) -> Proposal | None:
        if snapshot.situation is None or snapshot.trial is not None:
            return None
        free = max(1, options.num_cores - snapshot.situation.neighbours)
        fitting = nearest(self._losers.without(snapshot, options.allowed), free)
        in_force = options.plans.get(snapshot.plan)
        backend = None if in_force is None else backend_of(in_force)
        fitting.sort(key=lambda plan: backend_of(plan) != backend)
        if not fitting or fitting[0].fingerprint == snapshot.plan:
            return None
        reason = f"{free} of {options.num_cores} cores are free"
        return Proposal(plan=fitting[0], how=How.TRY, reason=reason)

    def learn(self, outcome: Outcome) -> None:
        self._losers.learn(outcome)


class Losers:
    """Plans that did not win their trial in a situation: not proposed there again for a while."""

    def __init__(self) -> None:
        self._rests, self._now_s = Rests(), 0.0

    def without(self, snapshot: Snapshot, plans: Mapping[str, Plan]) -> list[Plan]:
        """All that may be proposed; the plan in force is among them."""
        self._now_s = snapshot.at_s
        return [
            p for f, p in plans.items() if not self._rests((snapshot.situation, f), self._now_s)
        ]

    def learn(self, outcome: Outcome) -> None:
        if not outcome.kept and outcome.situation is not None and outcome.why != CHANGED:
            self._rests.add((outcome.situation, outcome.plan), self._now_s, REST_S)


def nearest(plans: Sequence[Plan], threads: int) -> list[Plan]:
    """Those whose number of threads is nearest to this one, not above it if that can be."""
    known = {plan: threads_of(plan) for plan in plans}
    counts = {count for count in known.values() if count is not None}
    best = min(counts, key=lambda count: (count > threads, abs(count - threads)), default=None)
    return [plan for plan, count in known.items() if count is not None and count == best]


def threads_of(plan: Plan) -> int | None:
    return max((r.rewrite.threads or 0 for r in plan.regions), default=0) or None


def backend_of(plan: Plan) -> str:
    return next((r.rewrite.backend for r in plan.regions if r.rewrite.backend != "eager"), "eager")
