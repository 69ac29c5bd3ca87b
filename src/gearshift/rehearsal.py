"""Before the first call: plans are made ready and timed on the example, while nobody waits.

Sees protocols only. What it finds out is told and kept like what calls took.
"""

from collections.abc import Callable, Iterable
from time import monotonic

from gearshift.decide.policy import How, Proposal
from gearshift.ir.snapshot import Situation
from gearshift.loop import Loop
from gearshift.plan.library import Build, entry_of
from gearshift.plan.plan import Plan

WARM_UP_S, PLAY_S, LEAST = 0.25, 0.15, 6
"""So long, and so often, the example runs on a plan; what it warms up with does not count, and is
long enough to see who else is there."""
CLOSE, ROUNDS, FINAL_S = 1.3, 8, 2.0
"""What takes no more than so many times the least is timed again so often, all in turns; if the
time is over by then, for so long."""
TURN_WARM_UP_S, TURN_S = 0.03, 0.1
"""Of one turn."""
ENOUGH_BETTER = 1.05
"""So many times as fast as the model itself, to serve from the first call."""
A_BUILD = 30
"""Calls' worth of time to make the first plan ready: the model answers a dozen questions, and so
does the plan."""
CALLS, LONGER = 80, 5.0
"""A model whose own calls are slow gets the time of so many of them, but no more than so many times
what others get."""
REASON = "made ready and timed before the first call"
CHOSEN = "took least on the example, before the first call: {:.2f} times as fast"


def rehearse(
    loop: Loop, plans: Iterable[Plan], seconds: float, clock: Callable[[], float] = monotonic
) -> None:
    """Most hopeful first; the best of all serves. The first of them is the model itself: one so
    slow that not even one plan could be made ready is left to its calls. A later start that knows
    the situation there is does not wait again: what it has not measured is tried beside calls."""
    start_s = clock()
    rehearsal = Rehearsal(loop, list(plans), seconds, clock)
    rehearsal.run()
    loop.rehearsed = (len(rehearsal.timed), clock() - start_s)


class Rehearsal:
    def __init__(
        self, loop: Loop, plans: list[Plan], seconds: float, clock: Callable[[], float]
    ) -> None:
        self.loop, self.guard, self.hands = loop, loop.guard, loop.hands
        self.eager, self.plans = plans[0], plans
        self.seconds, self.clock = seconds, clock
        self.end_s = clock() + seconds
        self.timed: set[Plan] = set()

    def run(self) -> None:
        if any(self._known_s(plan) is not None for plan in self.plans[1:]):
            return
        self.hands.play(self.eager, 0.0, 1, self.loop.glance)
        start_s = self.clock()
        self.hands.play(self.eager, 0.0, 1, self.loop.glance)
        call_s = self.clock() - start_s
        self.end_s = start_s + min(max(self.seconds, CALLS * call_s), LONGER * self.seconds)
        if A_BUILD * call_s > self.left_s():
            return
        if self._known_s(self.eager) is None:
            self.time(self.eager)
        for plan in self.hopeful():
            if self.left_s() > 0:
                self.try_out(plan)
        self.in_turns()
        self.choose()

    def left_s(self) -> float:
        return self.end_s - self.clock()

    @property
    def situation(self) -> Situation | None:
        return None if self.loop.seen is None else self.loop.seen.situation

    def try_out(self, plan: Plan) -> None:
        refusal = self.hands.make_ready(plan, REASON, keep=self._best())
        snapshot = self.loop.seen
        if refusal is None:
            self.time(plan)
        elif snapshot is not None:
            proposal = Proposal(plan=plan, how=How.TRY, reason=REASON)
            self.loop.changeover.refuse(proposal, snapshot, refusal)

    def time(self, plan: Plan) -> None:
        """Once more if somebody came or went meanwhile."""
        self._time(plan)
        if self._known_s(plan) is None:
            self._time(plan)
        self.timed.add(plan)
        self._tell_gain(plan)

    def _tell_gain(self, plan: Plan) -> None:
        eager_s, plan_s = self._known_s(self.eager), self._known_s(plan)
        if plan != self.eager and eager_s is not None and plan_s is not None:
            self.hands.amend(plan.fingerprint, eager_s / plan_s)

    def in_turns(self) -> None:
        """What is about as good as the best: short turns, so that none has a better moment."""
        self.end_s = max(self.end_s, self.clock() + FINAL_S)
        for _ in range(ROUNDS):
            for plan in self.close():
                if self.left_s() > 0:
                    self._time(plan, TURN_WARM_UP_S, TURN_S)
        for plan in self.close():
            self._tell_gain(plan)

    def _time(self, plan: Plan, warm_up_s: float = WARM_UP_S, play_s: float = PLAY_S) -> None:
        loop = self.loop
        self.hands.play(plan, warm_up_s, 1, loop.glance)
        loop.glance()
        loop.observe()  # what was before
        self.hands.play(plan, play_s, LEAST, loop.glance)
        loop.glance()
        loop.seen = snapshot = loop.observe()
        self.guard.note(snapshot)
        loop.ask(snapshot)

    def _known_s(self, plan: Plan) -> float | None:
        if self.situation is None:
            return None
        seen = self.guard.model.measured(self.situation, plan.fingerprint)
        return None if seen is None else seen.mean_s

    def _known(self) -> dict[Plan, float]:
        """Of those that could serve at once."""
        ready = set(self.hands.ready)
        known = {plan: self._known_s(plan) for plan in self.plans if plan.fingerprint in ready}
        return {plan: seconds for plan, seconds in known.items() if seconds is not None}

    def _best(self) -> Plan:
        known = self._known()
        return min(known, key=lambda plan: known[plan], default=self.eager)

    def hopeful(self) -> list[Plan]:
        """Those not measured here, what is foreseen to take least first."""
        situation = self.situation
        if situation is None:
            return []
        foreseen = {
            plan: self.guard.model.estimate(plan, situation, self.guard.plans)
            for plan in self.plans
            if self._known_s(plan) is None and not is_slow(plan)
        }
        hopes = {plan: e.mean_s for plan, e in foreseen.items() if e is not None}
        return sorted(hopes, key=lambda plan: hopes[plan])

    def close(self) -> list[Plan]:
        """What may be the best as well."""
        known = self._known()
        least_s = min(known.values(), default=0.0)
        near = [plan for plan, seconds in known.items() if seconds <= CLOSE * least_s]
        return near if len(near) > 1 else []

    def choose(self) -> None:
        """By the guard's own record."""
        if self.loop.seen is not None:
            self.loop.roll_back(self.loop.seen, CHOSEN, ENOUGH_BETTER)


def is_slow(plan: Plan) -> bool:
    """To build: that is for the time beside calls."""
    entries = [entry_of(region.rewrite) for region in plan.regions]
    return any(entry is not None and entry.build is Build.SLOW for entry in entries)
