"""Before the first call: plans are made ready and timed on the example, while nobody waits.

Sees protocols only. What it finds out is told and kept like what calls took.
"""

from collections.abc import Iterable
from time import monotonic

from gearshift.decide.policy import How, Proposal
from gearshift.hands import Hands
from gearshift.ir.snapshot import Situation
from gearshift.loop import Loop
from gearshift.plan.plan import Plan

WARM_UP_S, PLAY_S, LEAST = 0.1, 0.15, 6
"""So long, and so often, the example runs on a plan; what it warms up with does not count, and is
long enough to see who else is there."""
CLOSE, ROUNDS = 1.3, 2
"""What takes no more than so many times the least is timed again so often, all in turns."""
A_BUILD = 30
"""Calls' worth of time to make the first plan ready: the model answers a dozen questions, and so
does the plan."""
REASON = "made ready and timed before the first call"


def rehearse(loop: Loop, plans: Iterable[Plan], seconds: float) -> None:
    """Those not measured yet in the situation there is, most hopeful first; the best of all
    serves. A model so slow that not even one could be made ready is left to its calls."""
    rehearsal = Rehearsal(loop)
    eager = next(iter(plans))
    end_s = monotonic() + seconds
    eager_s = rehearsal.time(eager) or rehearsal.time(eager)  # somebody may have come meanwhile
    if eager_s is None or A_BUILD * eager_s > seconds:
        return
    for plan in rehearsal.hopeful(plans):
        if monotonic() > end_s:
            break
        if loop.hands.make_ready(plan, REASON):
            rehearsal.time(plan)
    for _ in range(ROUNDS):
        for plan in rehearsal.close(plans):
            rehearsal.time(plan)
    rehearsal.choose()


class Rehearsal:
    def __init__(self, loop: Loop) -> None:
        self.loop, self.guard = loop, loop.guard
        self.hands: Hands = loop.hands

    @property
    def situation(self) -> Situation | None:
        return None if self.loop.seen is None else self.loop.seen.situation

    def time(self, plan: Plan) -> float | None:
        """Seconds it takes here; None if that is not known yet."""
        loop = self.loop
        self.hands.play(plan, WARM_UP_S, 1)
        loop.glance()
        loop.observe()  # what was before
        self.hands.play(plan, PLAY_S, LEAST)
        loop.glance()
        loop.seen = snapshot = loop.observe()
        self.guard.note(snapshot)
        loop.ask(snapshot)
        return self._known_s(plan)

    def _known_s(self, plan: Plan) -> float | None:
        if self.situation is None:
            return None
        seen = self.guard.model.measured(self.situation, plan.fingerprint)
        return None if seen is None else seen.mean_s

    def hopeful(self, plans: Iterable[Plan]) -> list[Plan]:
        """Those not measured here, what is foreseen to take least first."""
        situation, known = self.situation, self.guard.plans
        if situation is None:
            return []
        foreseen = {
            plan: self.guard.model.estimate(plan, situation, known)
            for plan in plans
            if self._known_s(plan) is None
        }
        hopes = {plan: e.mean_s for plan, e in foreseen.items() if e is not None}
        return sorted(hopes, key=lambda plan: hopes[plan])

    def close(self, plans: Iterable[Plan]) -> list[Plan]:
        """What may be the best as well."""
        ready = set(self.hands.ready)
        known = {p: self._known_s(p) for p in plans if p.fingerprint in ready}
        times = {plan: seconds for plan, seconds in known.items() if seconds is not None}
        least_s = min(times.values(), default=0.0)
        near = [plan for plan, seconds in times.items() if seconds <= CLOSE * least_s]
        return near if len(near) > 1 else []

    def choose(self) -> None:
        """By the guard's own record."""
        snapshot = self.loop.seen
        found = None if snapshot is None else self.guard.better_known(snapshot)
        if snapshot is None or found is None:
            return
        plan, best, ratio = found
        proposal = Proposal(
            plan=plan,
            how=How.ADOPT,
            reason=f"took least on the example, before the first call, in {self.situation}",
            predicted_s=best.mean_s,
            current_s=best.mean_s * ratio,
        )
        self.loop.changeover.adopt(proposal, snapshot)
