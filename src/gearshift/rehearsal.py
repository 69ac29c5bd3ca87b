"""Before the first call: plans are made ready and timed on the example, while nobody waits.

First as it is, then beside a stand-in for a neighbour. Sees protocols only. What it finds out is
told and kept like what calls took.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager
from math import inf, log
from statistics import fmean
from time import monotonic
from typing import NamedTuple

from gearshift.decide.policy import How, Proposal
from gearshift.decide.trial import AT_LEAST, times_as_fast
from gearshift.ir.snapshot import Situation
from gearshift.ir.topology import members
from gearshift.loop import Loop
from gearshift.plan.library import Build, entry_of
from gearshift.plan.plan import Plan


class Play(NamedTuple):
    """How the example runs on a plan that is timed. What it warms up with does not count."""

    warm_up_s: float
    seconds: float
    least: int
    """So many calls count at least."""


FIRST = Play(warm_up_s=0.25, seconds=0.15, least=6)
"""Long enough to see who else is there."""
TURN = Play(warm_up_s=0.03, seconds=0.1, least=2)
BESIDE = Play(warm_up_s=0.1, seconds=0.15, least=5)
"""The stand-in."""
CLOSE, ROUNDS, FINAL_S = 1.3, 8, (2.0, 5.0)
"""What takes no more than so many times the least is timed again so often, all in turns; if the
time is over by then, for so long, or longer where calls are slow."""
FINAL_CALLS = 16
"""So many of each are to take turns then."""
ENOUGH_BETTER = 1.05
"""So many times as fast as the model itself, to serve from the first call."""
A_BUILD = 30
"""Calls' worth of time to make the first plan ready: the model answers a dozen questions, and so
does the plan."""
CALLS, LONGER = 160, 5.0
"""A model whose own calls are slow gets the time of so many of them, but no more than so many times
what others get."""
BESIDE_SHARE, BESIDE_FINAL_S, FAR = 0.4, (1.0, 2.5), 1.7
"""Beside the stand-in: so much of the time of the first part, so long in turns. What is foreseen to
take so many times what the best took there is left out."""
NOTICE_S = 2.0
"""So long it may take until the stand-in is seen to have come, or to have gone."""
REASON = "made ready and timed before the first call"
CHOSEN = "took least on the example, before the first call: {:.2f} times as fast"
Kind = tuple[bool, bool, bool, str]
StandIn = Callable[[], AbstractContextManager[object]]
"""Somebody who wants a core as long as it lasts."""


def rehearse(
    loop: Loop,
    plans: Iterable[Plan],
    seconds: float,
    clock: Callable[[], float] = monotonic,
    stand_in: StandIn | None = None,
) -> None:
    """Most hopeful first; the best of all serves. The first of them is the model itself: one so
    slow that not even one plan could be made ready is left to its calls. A later start that knows
    the situation there is does not wait again: what it has not measured is tried beside calls. On a
    quiet machine a stand-in then shows what will be best once a neighbour comes."""
    start_s = clock()
    rehearsal = Rehearsal(loop, list(plans), seconds, clock)
    rehearsal.run()
    if rehearsal.timed and stand_in is not None:
        rehearsal.run_beside(stand_in)
    took_s = clock() - start_s
    loop.rehearsed = (len(rehearsal.timed), took_s)
    loop.guard.before_s += took_s


class Rehearsal:
    def __init__(
        self, loop: Loop, plans: list[Plan], seconds: float, clock: Callable[[], float]
    ) -> None:
        self.loop, self.guard, self.hands = loop, loop.guard, loop.hands
        self.eager, self.plans = plans[0], plans
        self.seconds, self.clock = seconds, clock
        self.began_s = clock()
        self.end_s = self.began_s + seconds
        self.timed: list[Plan] = []

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
            self.time(self.eager, FIRST)
            self.timed.append(self.eager)
        for plan in one_of_each_kind_first(list(self.hopeful())):
            if self.left_s() > 0:
                self.try_out(plan)
        self.in_turns(FINAL_S)
        for plan in self.timed:
            self._tell_gain(plan)
        self.choose()

    def run_beside(self, stand_in: StandIn) -> None:
        """Only where nobody is there yet, and only what is ready: nothing is put in force."""
        if self.situation is None or self.situation.neighbours:
            return
        began_s, first_s = self.clock(), self.clock() - self.began_s
        with stand_in():
            if self._notice(1):
                self.end_s = began_s + BESIDE_SHARE * first_s
                for plan in self.promising():
                    self.time(plan, BESIDE)
                self.in_turns(BESIDE_FINAL_S)
        self._notice(0)
        self._time(self._best(), TURN)  # the last answer is to be about what is there now

    def promising(self) -> Iterator[Plan]:
        """Of what could serve at once, while there is time."""
        ready = set(self.hands.ready)
        for plan, foreseen_s in self.hopeful().items():
            best_s = min(self._known().values(), default=inf)
            if plan.fingerprint in ready and self.left_s() > 0 and foreseen_s <= FAR * best_s:
                yield plan

    def _notice(self, count: int) -> bool:
        """Plays on until so many neighbours are seen; False if they are not."""
        sampler, end_s = self.loop.sampler, self.clock() + NOTICE_S
        while (sampler.neighbours != count or sampler.doubtful) and self.clock() < end_s:
            turn_ends_s = self.clock() + TURN.seconds
            self.hands.play(self._best(), TURN.seconds, 1, self.loop.glance)
            self.loop.pause(turn_ends_s - self.clock())  # one in parts plays but once
            self.loop.glance()
        self.loop.seen = self.loop.observe()
        return sampler.neighbours == count

    def left_s(self) -> float:
        return self.end_s - self.clock()

    @property
    def situation(self) -> Situation | None:
        return None if self.loop.seen is None else self.loop.seen.situation

    def try_out(self, plan: Plan) -> None:
        refusal = self.hands.make_ready(plan, REASON, keep=self._best())
        snapshot = self.loop.seen
        if refusal is None:
            self.time(plan, FIRST)
            self.timed.append(plan)
        elif snapshot is not None:
            proposal = Proposal(plan=plan, how=How.TRY, reason=REASON)
            self.loop.changeover.refuse(proposal, snapshot, refusal)

    def time(self, plan: Plan, play: Play) -> None:
        """Once more if somebody came or went meanwhile."""
        self._time(plan, play)
        if self._known_s(plan) is None:
            self._time(plan, play)

    def _tell_gain(self, plan: Plan) -> None:
        eager_s, plan_s = self._known_s(self.eager), self._known_s(plan)
        if plan != self.eager and eager_s is not None and plan_s is not None:
            self.hands.amend(plan.fingerprint, eager_s / plan_s)

    def in_turns(self, final_s: tuple[float, float]) -> None:
        """What is about as good as the best: short turns, so that none has a better moment."""
        (least_s, most_s), close, known = final_s, self.close(), self._known()
        calls_s = FINAL_CALLS * sum(known[plan] for plan in close)
        self.end_s = max(self.end_s, self.clock() + max(least_s, min(calls_s, most_s)))
        situation = self.situation
        took_s: dict[Plan, list[float]] = {plan: [] for plan in close}
        for _ in range(ROUNDS):
            for plan in took_s:
                if self.left_s() > 0:
                    took_s[plan] += self._time(plan, TURN)
        if self.situation == situation:
            self._tell_turns(took_s)

    def _tell_turns(self, took_s: dict[Plan, list[float]]) -> None:
        """As if they had been on live calls, so that they need not take turns there, too."""
        enough = {plan: seconds for plan, seconds in took_s.items() if len(seconds) >= AT_LEAST}
        best = min(enough, key=lambda plan: fmean(map(log, enough[plan])), default=None)
        if best is None or self.loop.seen is None:
            return
        for plan, seconds in enough.items():
            if plan != best:
                proposal = Proposal(plan=plan, how=How.TRY, reason=REASON)
                gain = times_as_fast(enough[best], seconds)
                self.loop.changeover.told_apart(
                    proposal, self.loop.seen, best.fingerprint, gain, len(seconds)
                )

    def _time(self, plan: Plan, play: Play) -> list[float]:
        """What calls took."""
        loop = self.loop
        self.hands.play(plan, play.warm_up_s, 1, loop.glance)
        loop.glance()
        loop.observe()  # what was before
        self.hands.play(plan, play.seconds, play.least, loop.glance)
        loop.glance()
        loop.seen = snapshot = loop.observe()
        self.guard.note(snapshot)
        loop.ask(snapshot)
        mine = [sample for sample in snapshot.samples if sample.plan == plan.fingerprint]
        return [
            s for sample in mine if sample.situation == snapshot.situation for s in sample.seconds
        ]

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

    def hopeful(self) -> dict[Plan, float]:
        """Those not measured here, what is foreseen to take least first, and how long that is."""
        situation = self.situation
        if situation is None:
            return {}
        foreseen = {
            plan: self.guard.model.estimate(plan, situation, self.guard.plans)
            for plan in self.plans
            if self._known_s(plan) is None and not is_slow(plan)
        }
        hopes = {plan: e.mean_s for plan, e in foreseen.items() if e is not None}
        return dict(sorted(hopes.items(), key=lambda hope: hope[1]))

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


def one_of_each_kind_first(plans: Sequence[Plan]) -> list[Plan]:
    """By which backend most of it runs, whether it is divided or unrolled, and over several engines
    or not; then the second of each kind: what is foreseen of one kind is often off by as much for
    all of it."""
    numbers: Counter[Kind] = Counter()
    rounds: dict[Plan, int] = {}
    for plan in plans:
        kind = _kind(plan)
        rounds[plan] = numbers[kind]
        numbers[kind] += 1
    return sorted(plans, key=lambda plan: rounds[plan])


def _kind(plan: Plan) -> Kind:
    unrolled = any(region.unroll is not None for region in plan.regions)
    divided = any(region.split is not None for region in plan.regions)
    largest = max(plan.regions, key=lambda region: len(region.ops))
    together = len(members(largest.engine)) > 1
    return (unrolled, divided, together, "" if unrolled else largest.rewrite.backend)


def is_slow(plan: Plan) -> bool:
    """To build: that is for the time beside calls."""
    entries = [entry_of(region.rewrite) for region in plan.regions]
    return any(entry is not None and entry.build is Build.SLOW for entry in entries)
