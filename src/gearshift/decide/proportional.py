"""Threads in proportion to the cores that others leave free, on the backend in force or the first.

No memory and no measurement: a baseline that reacts at once and is often wrong.
"""

from gearshift.decide.policy import How, Options, Outcome, Proposal
from gearshift.ir.snapshot import Snapshot
from gearshift.plan.plan import Plan


class Proportional:
    name = "proportional"

    def propose(self, snapshot: Snapshot, options: Options) -> Proposal | None:
        if snapshot.situation is None or snapshot.trial is not None:
            return None
        free = max(1, options.num_cores - snapshot.situation.neighbours)
        fitting = [plan for plan in options.allowed.values() if threads_of(plan) == free]
        in_force = options.plans.get(snapshot.plan)
        backend = None if in_force is None else backend_of(in_force)
        fitting.sort(key=lambda plan: backend_of(plan) != backend)
        if not fitting or fitting[0].fingerprint == snapshot.plan:
            return None
        reason = f"{free} of {options.num_cores} cores are free"
        return Proposal(plan=fitting[0], how=How.TRY, reason=reason)

    def learn(self, outcome: Outcome) -> None:
        return None


def threads_of(plan: Plan) -> int | None:
    return max((r.rewrite.threads or 0 for r in plan.regions), default=0) or None


def backend_of(plan: Plan) -> str:
    return next((r.rewrite.backend for r in plan.regions if r.rewrite.backend != "eager"), "eager")
