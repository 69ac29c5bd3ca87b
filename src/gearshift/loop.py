"""The loop: observe, let the policy propose, let the guard review, act, learn.

Sees protocols only. Runs on a thread of its own; what takes long is done elsewhere.
"""

import logging
import threading
from collections import Counter
from dataclasses import replace
from itertools import count
from time import monotonic, thread_time

from gearshift.changeover import Changeover
from gearshift.decide.control import Control
from gearshift.decide.guard import Guard
from gearshift.decide.messages import Answer
from gearshift.decide.policy import REFUSED, How, Proposal
from gearshift.hands import Gone, Hands, Refusal
from gearshift.ir.snapshot import Situation, Snapshot
from gearshift.observe.history import History
from gearshift.observe.sampler import Sampler
from gearshift.plan.plan import Plan

log = logging.getLogger("gearshift")
TICK_S, CALM_S, STEP_EVERY = 0.1, 0.2, 2
"""Who else is there is looked at each tick, less often while all is calm; if nothing is under way,
the rest every few ticks."""
SETTLED_STEPS, SETTLED_EVERY = 25, 5
"""After so many steps in which nothing happened it is so many ticks: each takes a core from calls
for some milliseconds."""
ROLLED_BACK = "rolled back: the plan in force takes {:.2f} times as long here"
MAX_SERVED = 64
"""Situations of which it is remembered what served them."""
RECALL_S, RECALL_TICK_S, MAX_REPEATS = 5.0, 0.02, 2
"""What is known from earlier starts is waited for no longer than this,"""
SERVING_S = 30.0
"""except for the plan that is to serve, if the model's own calls are slow and it is verified by
them: without it the model itself would serve."""
PATIENCE_S, LOOKS = 3.0, 4
"""So long the control plane is waited for: on a new machine it measures the roofline first. Then
it takes so many ticks to know who else is there."""


class Loop:
    def __init__(self, *, sampler: Sampler, control: Control, guard: Guard, hands: Hands) -> None:
        self.sampler, self.control, self.guard, self.hands = sampler, control, guard, hands
        self.changeover = Changeover(guard, hands)
        self.served_in: dict[Situation, str] = {}
        self.seen: Snapshot | None = None
        self.history = History()
        self.answer = Answer()
        """The last one,"""
        self.answers = 0
        """and how many there were."""
        self.put_off = ""
        """What was proposed last and may not happen now, and why; empty if it may."""
        self.cost_s = 0.0
        """CPU time of this side; `answer` tells the other's,"""
        self.before_cpu_s = 0.0
        """so much of which was spent before calls could come."""
        self.began_s = monotonic()
        """When they could."""
        self._to_serve: Plan | None = None
        """What an earlier start knows to be best, once that is asked for."""
        self.rehearsed: tuple[int, float] = (0, 0.0)
        """How many plans were timed before that, and how long it took."""
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="gearshift loop", daemon=True)

    def tick(self) -> None:
        self.glance()
        self.step()

    def glance(self) -> bool:
        """Only who else is there; True if that changed."""
        changed = self.sampler.glance(disturbed=self.hands.disturbed)
        self.hands.note_neighbours(self.sampler.neighbours, self.sampler.spare_core)
        return changed

    def step(self) -> None:
        before, snapshot = self.seen, self.observe()
        self.seen = snapshot
        self.history.add(replace(snapshot, samples=(), ready=(), measured=()))
        self.guard.note(snapshot)
        self.changeover.follow(snapshot)
        proposal = self.ask(snapshot)
        if self.changeover.trial is not None or self.hands.by_hand:
            return
        if before is not None and before.situation != snapshot.situation:
            if not self.go_back(before, snapshot) and not self.changeover.building:
                self.roll_back(snapshot)
        elif self.changeover.building and not self._at_once(proposal, snapshot):
            return
        elif (self.changeover.building or not self.roll_back(snapshot)) and proposal is not None:
            self.consider(proposal, snapshot)

    def observe(self) -> Snapshot:
        hands = self.hands
        self.sampler.follow(hands.threads)
        snapshot = self.sampler.take(
            hands.in_force,
            hands.trial,
            hands.timings(),
            served=hands.served,
            held_bytes=hands.held_bytes,
            ready=hands.ready,
        )
        may_build = self.guard.may_build(snapshot.situation)
        told = replace(snapshot, may_build=may_build, measured=hands.take_measured())
        return replace(told, layers=hands.take_layers())

    def ask(self, snapshot: Snapshot) -> Proposal | None:
        """The answer may be to an earlier question."""
        outcomes, self.changeover.outcomes = self.changeover.outcomes, []
        answer = self.control.ask(snapshot, outcomes)
        if answer is None:
            return None
        if answer.roofline is not None and self.answer.roofline is None:
            self.sampler.use(answer.roofline)
        if self.answers == 0:
            for plan in answer.plans:
                self.guard.know(plan)
            for sample in answer.recalled:
                self.guard.recall(sample)
        self.answer = answer
        self.answers += 1
        return answer.proposal

    def consider(self, proposal: Proposal, snapshot: Snapshot) -> None:
        reason = self.guard.review(proposal, snapshot, self.hands.why_illegal)
        served = proposal.plan.fingerprint == snapshot.plan  # an answer to an earlier question
        self.put_off = "" if reason is None or served else f"{proposal.plan.summary}: {reason}"
        if reason is not None:
            if reason.startswith(REFUSED):
                why = reason.removeprefix(f"{REFUSED}: ")
                self.changeover.refuse(proposal, snapshot, Refusal(why, lasting=True))
        elif self.guard.is_known(proposal, snapshot):
            self.changeover.adopt(proposal, snapshot)
        elif proposal.how in (How.STAND_BY, How.MEASURE):
            self.changeover.beside_calls(proposal, snapshot)
        else:
            self.changeover.begin_trial(proposal, snapshot)

    def go_back(self, before: Snapshot, snapshot: Snapshot) -> bool:
        """What served a situation when it was left, for long enough to be measured, serves it
        again at once, if it still can."""
        if before.situation is not None:
            self.served_in[before.situation] = before.plan
            self.served_in = dict(list(self.served_in.items())[-MAX_SERVED:])
        situation = snapshot.situation
        plan = self.guard.plans.get(self.served_in.get(situation, "")) if situation else None
        if situation is None or plan is None or plan.fingerprint == snapshot.plan:
            return False
        seen = self.guard.model.measured(situation, plan.fingerprint)
        if seen is None or plan.fingerprint not in snapshot.ready:
            return False
        if self.guard.too_soon(snapshot) is not None or self.guard.is_slower(plan, snapshot):
            return False
        current = self.guard.plans.get(snapshot.plan)
        model, plans = self.guard.model, self.guard.plans
        foreseen = None if current is None else model.estimate(current, situation, plans)
        proposal = Proposal(
            plan=plan,
            how=How.ADOPT,
            reason=f"served before in {situation}",
            predicted_s=seen.mean_s,
            current_s=None if foreseen is None else foreseen.mean_s,
        )
        self.changeover.adopt(proposal, snapshot)
        return True

    def roll_back(
        self, snapshot: Snapshot, why: str = ROLLED_BACK, clearly: float | None = None
    ) -> bool:
        """What is known to be slower than another does not stay, whatever the policy thinks."""
        found = self.guard.better_known(snapshot, clearly)
        if found is None or self.hands.why_illegal(found[0]) is not None:
            return False
        plan, best, ratio = found
        proposal = Proposal(
            plan=plan,
            how=How.ADOPT,
            reason=why.format(ratio),
            predicted_s=best.mean_s,
            current_s=best.mean_s * ratio,
        )
        self.changeover.adopt(proposal, snapshot)
        return True

    def _at_once(self, proposal: Proposal | None, snapshot: Snapshot) -> bool:
        """Whether it needs no build, so that it need not wait for one under way."""
        return (
            proposal is not None
            and proposal.plan.fingerprint in snapshot.ready
            and self.guard.is_known(proposal, snapshot)
        )

    def look_around(self) -> None:
        """Before the first call: who else is there, once the control plane is."""
        end_s = monotonic() + PATIENCE_S
        while self.answers == 0 and monotonic() < end_s:
            self.ask(self.observe())
            self._stop.wait(RECALL_TICK_S)
        for _ in range(LOOKS):
            self._stop.wait(TICK_S)
            self.glance()
        self.seen = self.observe()

    def recall(self) -> None:
        """Before the first call: what is known from earlier starts to be best serves, and what is
        known to be for other situations stands by. Later, building it would slow down calls."""
        try:
            self._recall()
        except Exception:  # then it is found again
            log.exception("what is known from earlier starts is of no use")

    def _recall(self) -> None:
        start_s = monotonic()
        proposed: Counter[str] = Counter()
        while monotonic() < start_s + (SERVING_S if self._is_adopting else RECALL_S):
            self.glance()
            snapshot = self.seen = replace(self.observe(), may_build=True)  # nobody waits yet
            answers = self.answers
            proposal = None if self.changeover.building else self.ask(snapshot)
            if self.answers > answers and not self._recalled(proposal, snapshot, proposed):
                break
            self._stop.wait(RECALL_TICK_S)

    @property
    def _is_adopting(self) -> bool:
        """Whether what is to serve from the first call is under way."""
        building = self.changeover.building
        return building is not None and building == self._to_serve

    def _recalled(
        self, proposal: Proposal | None, snapshot: Snapshot, proposed: Counter[str]
    ) -> bool:
        """Whether there may be more. An answer may be to a question from before the last change,
        so that one repeated proposal means nothing."""
        if proposal is None:
            return False
        plan = proposal.plan.fingerprint
        proposed[plan] += 1
        if proposed[plan] == 1 and self._is_best_known(proposal, snapshot):
            self._to_serve = proposal.plan
            self.changeover.adopt(proposal, snapshot)
        elif proposed[plan] == 1 and proposal.how is How.STAND_BY:
            self.changeover.beside_calls(proposal, snapshot)
        else:
            return 1 < proposed[plan] <= MAX_REPEATS
        return True

    def _is_best_known(self, proposal: Proposal, snapshot: Snapshot) -> bool:
        """By a little will do: there are no calls yet on which it could take turns with another."""
        if proposal.how is not How.TRY or snapshot.situation is None:
            return self.guard.is_known(proposal, snapshot)
        seen = self.guard.model.measured(snapshot.situation, proposal.plan.fingerprint)
        return seen is not None and not self.guard.is_slower(proposal.plan, snapshot)

    @property
    def _astir(self) -> bool:
        return self.changeover.under_way or self.sampler.doubtful

    def pause(self, seconds: float) -> None:
        """Not if it is closed meanwhile."""
        if seconds > 0:
            self._stop.wait(seconds)

    def start(self) -> None:
        self.began_s, self.before_cpu_s = monotonic(), self.answer.cpu_s
        self._thread.start()

    def close(self) -> None:
        self._stop.set()
        if self._thread.is_alive() and self._thread is not threading.current_thread():
            self._thread.join()

    def _run(self) -> None:
        uneventful = 0
        for number in count():
            if self._stop.wait(TICK_S if self._astir else CALM_S):
                break
            try:
                eventful = self.glance() or self.changeover.under_way
                uneventful = 0 if eventful else uneventful
                if eventful or number % step_every(uneventful) == 0:
                    self.step()
                    uneventful += 1
                self.cost_s = thread_time()
            except Gone:
                break
            except Exception:  # calls go on without it; a bug is shown, not swallowed
                log.exception("the loop stumbled")
        self.control.close()
        self.sampler.close()


def step_every(uneventful: int) -> int:
    """In how many ticks, after so many steps in which nothing happened."""
    return SETTLED_EVERY if uneventful >= SETTLED_STEPS else STEP_EVERY
