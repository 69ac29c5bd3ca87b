"""Threads in proportion to the cores that others leave free, on the backend in force or the first.

No measurement: a baseline that reacts at once and is often wrong. What lost its trial rests.
"""

from collections.abc import Sequence

from gearshift.decide.losers import Losers
from gearshift.decide.policy import How, Options, Outcome, Proposal
from gearshift.ir.snapshot import Snapshot
from gearshift.plan.plan import Plan


class Proportional:
    name = "proportional"

    def __init__(self) -> None:
        self._losers, self._now_s = Losers(), 0.0

    def propose(self, snapshot: Snapshot, options: Options) -> Proposal | None:
        situation, self._now_s = snapshot.situation, snapshot.at_s
        if situation is None or snapshot.trial is not None:
            return None
        free = max(1, options.num_cores - situation.neighbours)
        usable = self._losers.without(options.allowed, situation, self._now_s)
        fitting = nearest(usable, free)
        in_force = options.plans.get(snapshot.plan)
        backend = None if in_force is None else backend_of(in_force)
        fitting.sort(key=lambda plan: backend_of(plan) != backend)
        if not fitting or fitting[0].fingerprint == snapshot.plan:
            return None
        reason = f"{free} of {options.num_cores} cores are free"
        return Proposal(plan=fitting[0], how=How.TRY, reason=reason)

    def learn(self, outcome: Outcome) -> None:
        self._losers.learn(outcome, self._now_s)


def nearest(plans: Sequence[Plan], threads: int) -> list[Plan]:
    """Those whose number of threads is nearest to this one, not above it if that can be."""
    known = {plan: threads_of(plan) for plan in plans}
    counts = {count for count in known.values() if count is not None}
    best = min(counts, key=lambda count: (count > threads, abs(count - threads)), default=None)
    return [plan for plan, count in known.items() if count is not None and count == best]


def threads_of(plan: Plan) -> int | None:
    return max((r.threads or 0 for r in plan.regions), default=0) or None


def backend_of(plan: Plan) -> str:
    return next((r.rewrite.backend for r in plan.regions if r.rewrite.backend != "eager"), "eager")
