"""Rules of thumb, fixed beforehand: what a careful engineer would set without measuring."""

from gearshift.decide.losers import Losers
from gearshift.decide.policy import How, Options, Outcome, Proposal
from gearshift.decide.proportional import backend_of, nearest
from gearshift.ir.snapshot import Snapshot
from gearshift.plan.plan import Plan

PREFERENCE = ("openvino", "onnxruntime", "inductor", "eager")


class Rules:
    """Quiet: all cores. Neighbours: as many threads as they leave cores, no spinning. The first
    backend there is; what lost its trial rests."""

    name = "rules"

    def __init__(self) -> None:
        self._losers, self._now_s = Losers(), 0.0

    def propose(self, snapshot: Snapshot, options: Options) -> Proposal | None:
        situation, self._now_s = snapshot.situation, snapshot.at_s
        if situation is None or snapshot.trial is not None:
            return None
        wanted = max(1, options.num_cores - situation.neighbours)
        usable = self._losers.without(options.allowed, situation, self._now_s)
        fitting = nearest([p for p in usable if not any(r.rewrite.spin for r in p.regions)], wanted)
        fitting.sort(key=_rank)
        if not fitting or fitting[0].fingerprint == snapshot.plan:
            return None
        others = "beside neighbours" if situation.neighbours else "on a quiet machine"
        reason = f"rule: {wanted} thread{'s' if wanted > 1 else ''} {others}"
        return Proposal(plan=fitting[0], how=How.TRY, reason=reason)

    def learn(self, outcome: Outcome) -> None:
        self._losers.learn(outcome, self._now_s)


def _rank(plan: Plan) -> int:
    """A backend of the user's own comes first: it is there because somebody wants it."""
    backend = backend_of(plan)
    return PREFERENCE.index(backend) if backend in PREFERENCE else -1
