"""The loop: observe, let the policy propose, let the guard review, act, learn.

Sees protocols only. Runs on a thread of its own; what takes long is done elsewhere.
"""

import logging
import threading
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from itertools import count
from statistics import geometric_mean
from time import monotonic, thread_time
from typing import Protocol

from gearshift.decide.control import Control
from gearshift.decide.guard import Guard
from gearshift.decide.messages import Answer
from gearshift.decide.policy import CHANGED, REFUSED, TOO_SLOW, How, Outcome, Proposal
from gearshift.decide.trial import Verdict, verdict
from gearshift.ir.snapshot import Situation, Snapshot
from gearshift.observe.sampler import Sampler, Timed
from gearshift.plan.plan import Plan
from gearshift.predict.estimate import Estimate

log = logging.getLogger("gearshift")
TICK_S, STEP_EVERY = 0.1, 4
"""Who else is there is looked at each tick; if nothing is under way, the rest every few ticks."""
MEASURED_CALLS = 10
"""So many calls tell what a change brought."""
RECALL_S, RECALL_TICK_S = 5.0, 0.02
"""What is known from earlier starts is waited for no longer than this."""
IDLE_S = 60.0
"""A trial that gets no calls for so long is over."""


class Gone(Exception):
    """There is nothing left to adapt."""


class Hands(Protocol):
    """The data plane, as far as the loop may move it. Nothing here takes long: what does is done
    elsewhere, and `done` hears when, and what went wrong."""

    @property
    def in_force(self) -> str: ...

    @property
    def trial(self) -> str | None: ...

    @property
    def spent_s(self) -> float:
        """What the trial under way has cost beyond the usual."""

    @property
    def by_hand(self) -> bool:
        """Whether the plan in force was asked for by the user: then it stays."""

    @property
    def held_bytes(self) -> int: ...

    @property
    def ready(self) -> Sequence[str]:
        """Plans that could serve at once, by fingerprint."""

    @property
    def disturbed(self) -> bool:
        """Whether other work of ours ran beside the calls since this was last asked."""

    def timings(self) -> Iterable[tuple[str, Timed]]: ...

    def why_illegal(self, plan: Plan) -> str | None: ...

    def adopt(self, proposal: Proposal, done: Callable[[str | None], None]) -> None: ...

    def begin_trial(
        self, proposal: Proposal, credit_s: float, done: Callable[[str | None], None]
    ) -> None: ...

    def end_trial(self, *, keep_new: bool, why: str, gain: float | None) -> float:
        """Seconds it cost beyond the usual."""

    def stand_by(self, plan: Plan, done: Callable[[str | None], None]) -> None: ...

    def amend(self, plan: str, measured_gain: float) -> None:
        """What the last change to this plan brought, once it is known."""


@dataclass(slots=True)
class Trial:
    proposal: Proposal
    credit_s: float
    began_s: float
    situation: Situation | None = None
    old: list[float] = field(default_factory=list)
    new: list[float] = field(default_factory=list)


@dataclass(slots=True)
class Adopted:
    """A plan taken over as known, and what the one before it took in the same situation."""

    proposal: Proposal
    situation: Situation
    old: Estimate | None
    new: list[float] = field(default_factory=list)


class Loop:
    def __init__(self, *, sampler: Sampler, control: Control, guard: Guard, hands: Hands) -> None:
        self.sampler, self.control, self.guard, self.hands = sampler, control, guard, hands
        self.outcomes: list[Outcome] = []
        self.trial: Trial | None = None
        self.adopted: Adopted | None = None
        self.busy = False
        """Whether something is being built."""
        self.served_in: dict[Situation, str] = {}
        self.seen: Snapshot | None = None
        self.answer = Answer()
        """The last one,"""
        self.asked = 0
        """and how many there were."""
        self.cost_s = 0.0
        """CPU time of this side; `answer` tells the other's."""
        self.began_s = monotonic()
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="gearshift loop", daemon=True)

    def tick(self) -> None:
        self.glance()
        self.step()

    def glance(self) -> bool:
        """Only who else is there; True if that changed."""
        return self.sampler.glance(disturbed=self.hands.disturbed)

    def step(self) -> None:
        before, snapshot = self.seen, self.observe()
        self.seen = snapshot
        self.guard.note(snapshot)
        if self.trial is not None:
            self.follow(self.trial, snapshot)
        if self.adopted is not None:
            self.measure_gain(self.adopted, snapshot)
        proposal = self.ask(snapshot)
        if self.trial is not None or self.hands.by_hand:
            return
        if before is not None and before.situation != snapshot.situation:
            self.leave(before, snapshot)
        elif self.busy and not self._at_once(proposal, snapshot):
            return
        elif proposal is not None:
            self.consider(proposal, snapshot)
        else:
            self.roll_back(snapshot)

    def observe(self) -> Snapshot:
        hands = self.hands
        return self.sampler.take(
            hands.in_force,
            hands.trial,
            hands.timings(),
            held_bytes=hands.held_bytes,
            ready=hands.ready,
        )

    def ask(self, snapshot: Snapshot) -> Proposal | None:
        outcomes, self.outcomes = self.outcomes, []
        answer = self.control.ask(snapshot, outcomes)
        if answer is None:
            return None
        if answer.roofline is not None and self.answer.roofline is None:
            self.sampler.use(answer.roofline)
        for sample in answer.recalled:
            self.guard.model.add(sample)
        self.answer = answer
        self.asked += 1
        return answer.proposal

    def leave(self, before: Snapshot, snapshot: Snapshot) -> None:
        """What served a situation when it was left serves it again at once, if it still can."""
        if before.situation is not None:
            self.served_in[before.situation] = before.plan
        known = snapshot.situation and self.served_in.get(snapshot.situation)
        if known is None or known == snapshot.plan or known not in snapshot.ready:
            return
        reason = f"served before in {snapshot.situation}"
        proposal = Proposal(plan=self.guard.plans[known], how=How.ADOPT, reason=reason)
        if self.guard.too_soon(snapshot) is None:
            self._adopt(proposal, snapshot)

    def consider(self, proposal: Proposal, snapshot: Snapshot) -> None:
        reason = self.guard.review(proposal, snapshot, self.hands.why_illegal)
        if reason is not None:
            if reason.startswith(REFUSED):
                self._tell(proposal, snapshot, kept=False, why=reason)
            return
        if self.guard.is_known(proposal, snapshot):
            self._adopt(proposal, snapshot)
            return
        self.busy = True
        if proposal.how is How.STAND_BY:
            self.hands.stand_by(proposal.plan, lambda error: self._done(proposal, snapshot, error))
        else:
            self._try(proposal, snapshot)

    def follow(self, trial: Trial, snapshot: Snapshot) -> None:
        """Until the difference is clear, the credit is used up, or the situation is another."""
        trial.situation = trial.situation or snapshot.situation
        changed = trial.situation != snapshot.situation
        for sample in snapshot.samples:
            if sample.situation == trial.situation:
                mine = sample.plan == trial.proposal.plan.fingerprint
                (trial.new if mine else trial.old).extend(self.guard.costs_of(sample))
        found = verdict(trial.old, trial.new)
        used_up = self.hands.spent_s >= trial.credit_s
        late = snapshot.at_s - trial.began_s > IDLE_S
        if found is None and not used_up and not late and not changed:
            return
        why = TOO_SLOW if used_up else CHANGED if changed else "no calls came"
        self._end(trial, snapshot, found, used_up, why)

    def roll_back(self, snapshot: Snapshot) -> None:
        """What is known to be slower than another does not stay, whatever the policy thinks."""
        found = self.guard.better_known(snapshot)
        if found is None:
            return
        plan, ratio = found
        reason = f"rolled back: the plan in force takes {ratio:.2f} times as long here"
        self._adopt(Proposal(plan=plan, how=How.ADOPT, reason=reason), snapshot)

    def measure_gain(self, adopted: Adopted, snapshot: Snapshot) -> None:
        """What a change brought, from the first calls in the situation it was made for."""
        plan = adopted.proposal.plan.fingerprint
        for sample in snapshot.samples:
            if sample.plan == plan and sample.situation == adopted.situation:
                adopted.new.extend(sample.seconds)
        over = snapshot.situation != adopted.situation or snapshot.plan != plan
        if len(adopted.new) < MEASURED_CALLS and not over:
            return
        self.adopted = None
        gain = None
        if adopted.old is not None and len(adopted.new) >= MEASURED_CALLS:
            gain = adopted.old.mean_s / geometric_mean(adopted.new)
            self.hands.amend(plan, gain)
        self._tell(adopted.proposal, snapshot, kept=True, why="serves", gain=gain)

    def _at_work(self) -> bool:
        """Whether something is under way that each tick is to follow."""
        return bool(self.busy or self.trial or self.adopted or self.outcomes)

    def _at_once(self, proposal: Proposal | None, snapshot: Snapshot) -> bool:
        """Whether it needs no build, so that it need not wait for one under way."""
        return (
            proposal is not None
            and proposal.plan.fingerprint in snapshot.ready
            and self.guard.is_known(proposal, snapshot)
        )

    def _adopt(self, proposal: Proposal, snapshot: Snapshot) -> None:
        building = proposal.plan.fingerprint not in snapshot.ready
        self.busy = self.busy or building
        self.guard.switched(snapshot)
        situation = snapshot.situation

        def done(error: str | None) -> None:
            if building:
                self.busy = False
            if error is None and situation is not None:
                old = self.guard.model.measured(situation, snapshot.plan, least=1)
                self.adopted = Adopted(proposal=proposal, situation=situation, old=old)
            else:
                self._tell(proposal, snapshot, kept=False, why=f"{REFUSED}: {error}")

        self.hands.adopt(proposal, done)

    def _try(self, proposal: Proposal, snapshot: Snapshot) -> None:
        credit_s = self.guard.credit_s

        def begun(error: str | None) -> None:
            if error is None:
                self.trial = Trial(proposal=proposal, credit_s=credit_s, began_s=monotonic())
                self.busy = False
            else:
                self._done(proposal, snapshot, error)

        self.hands.begin_trial(proposal, credit_s, begun)

    def _end(
        self, trial: Trial, snapshot: Snapshot, found: Verdict | None, used_up: bool, why: str
    ) -> None:
        """`why` is for a trial that came to no verdict."""
        wins = found is not None and found.new_wins
        why = why if found is None else found.why
        gain = None if found is None else found.gain
        cost_s = self.hands.end_trial(keep_new=wins, why=why, gain=gain)
        fingerprint = trial.proposal.plan.fingerprint
        too_slow = used_up and not wins
        self.guard.tried(fingerprint, cost_s=cost_s, too_slow=too_slow, at_s=snapshot.at_s)
        if wins:
            self.guard.switched(snapshot)
        self.trial = None
        self._tell(trial.proposal, snapshot, kept=wins, why=why, gain=gain)

    def _done(self, proposal: Proposal, snapshot: Snapshot, error: str | None) -> None:
        why = "serves" if error is None else f"{REFUSED}: {error}"
        self._tell(proposal, snapshot, kept=error is None, why=why)
        self.busy = False

    def _tell(
        self,
        proposal: Proposal,
        snapshot: Snapshot,
        *,
        kept: bool,
        why: str,
        gain: float | None = None,
    ) -> None:
        outcome = Outcome(
            plan=proposal.plan.fingerprint,
            how=proposal.how,
            kept=kept,
            why=why,
            situation=snapshot.situation,
            at_s=max(0.0, snapshot.at_s - self.began_s),
            reason=proposal.reason,
            predicted_gain=proposal.gain,
            measured_gain=gain,
        )
        self.outcomes.append(outcome)

    def recall(self) -> None:
        """Before the first call: what is known from earlier starts to be best serves."""
        end_s = monotonic() + RECALL_S
        while self.adopted is None and monotonic() < end_s:
            self.glance()
            snapshot = self.seen = self.observe()
            proposal = None if self.busy else self.ask(snapshot)
            if proposal is not None and self.guard.is_known(proposal, snapshot):
                self._adopt(proposal, snapshot)
            elif self.asked and not self.busy:
                return
            self._stop.wait(RECALL_TICK_S)

    def start(self) -> None:
        self._thread.start()

    def close(self) -> None:
        self._stop.set()
        if self._thread.is_alive() and self._thread is not threading.current_thread():
            self._thread.join()

    def _run(self) -> None:
        for number in count():
            if self._stop.wait(TICK_S):
                break
            try:
                if self.glance() or self._at_work() or number % STEP_EVERY == 0:
                    self.step()
                self.cost_s = thread_time()
            except Gone:
                break
            except Exception:  # calls go on without it; a bug is shown, not swallowed
                log.exception("the loop stumbled")
        self.control.close()
