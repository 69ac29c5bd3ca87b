"""Rules of thumb, fixed beforehand: what a careful engineer would set without measuring."""

from gearshift.decide.policy import How, Options, Outcome, Proposal
from gearshift.decide.proportional import backend_of, threads_of
from gearshift.ir.snapshot import Snapshot
from gearshift.plan.plan import Plan

PREFERENCE = ("openvino", "onnxruntime", "inductor", "eager")


class Rules:
    """Quiet: all cores. Neighbours: one thread, no spinning. The first backend there is."""

    name = "rules"

    def propose(self, snapshot: Snapshot, options: Options) -> Proposal | None:
        situation = snapshot.situation
        if situation is None or snapshot.trial is not None:
            return None
        wanted = 1 if situation.neighbours else options.num_cores
        calm = [p for p in options.allowed.values() if not any(r.rewrite.spin for r in p.regions)]
        fitting = [plan for plan in calm if threads_of(plan) == wanted]
        fitting.sort(key=_rank)
        if not fitting or fitting[0].fingerprint == snapshot.plan:
            return None
        others = "beside neighbours" if situation.neighbours else "on a quiet machine"
        reason = f"rule: {wanted} thread{'s' if wanted > 1 else ''} {others}"
        return Proposal(plan=fitting[0], how=How.TRY, reason=reason)

    def learn(self, outcome: Outcome) -> None:
        return None


def _rank(plan: Plan) -> int:
    """A backend of the user's own comes first: it is there because somebody wants it."""
    backend = backend_of(plan)
    return PREFERENCE.index(backend) if backend in PREFERENCE else -1
