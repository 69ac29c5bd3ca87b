"""Carries proposals out, and finds out what came of each: a plan adopted, tried, made ready.

Sees protocols only. Must not know who proposes.
"""

from dataclasses import dataclass, field, replace
from statistics import geometric_mean
from time import monotonic

from gearshift.decide.guard import Guard
from gearshift.decide.policy import (
    CHANGED,
    NOT_NOW,
    REFUSED,
    TOO_SLOW,
    Compared,
    How,
    Outcome,
    Proposal,
)
from gearshift.decide.trial import AT_MOST, Verdict, times_as_fast, verdict
from gearshift.hands import Hands, Refusal
from gearshift.ir.snapshot import Situation, Snapshot
from gearshift.plan.plan import Plan
from gearshift.predict.estimate import Estimate

MEASURED_CALLS = 10
"""So many calls tell what a change brought."""
OVERTAKEN = "another plan was put in force meanwhile"
ALIKE = 0.005
LONGEST_BUILD_S = 60.0
"""What took longer was stopped in between, with the whole process."""
IDLE_S = 60.0
"""A trial that gets no calls for so long is over."""


@dataclass(slots=True)
class Trial:
    proposal: Proposal
    credit_s: float
    last_s: float | None = None
    """When a call was seen last."""
    situation: Situation | None = None
    old: list[float] = field(default_factory=list)
    new: list[float] = field(default_factory=list)
    """What calls cost, as the objective has it."""
    old_s: list[float] = field(default_factory=list)
    new_s: list[float] = field(default_factory=list)


@dataclass(slots=True)
class Adopted:
    """A plan taken over as known, and what the one before it took in the same situation."""

    proposal: Proposal
    situation: Situation
    old: Estimate | None
    new: list[float] = field(default_factory=list)


class Changeover:
    """One trial and one build at a time. `outcomes` are for the policy to learn from."""

    def __init__(self, guard: Guard, hands: Hands) -> None:
        self.guard, self.hands = guard, hands
        self.outcomes: list[Outcome] = []
        self.trial: Trial | None = None
        self.adopted: Adopted | None = None
        self.building: Plan | None = None
        """What is made ready just now."""
        self._began_s = monotonic()

    @property
    def under_way(self) -> bool:
        return bool(self.building or self.trial or self.adopted or self.outcomes)

    def adopt(self, proposal: Proposal, snapshot: Snapshot) -> None:
        building = proposal.plan.fingerprint not in snapshot.ready
        if building:
            self.building = proposal.plan
        situation = snapshot.situation
        start_s = monotonic()

        def done(refusal: Refusal | None) -> None:
            if building:
                self._built(start_s)
            if refusal is not None:
                self.refuse(proposal, snapshot, refusal)
                return
            self.guard.switched(replace(snapshot, at_s=snapshot.at_s + monotonic() - start_s))
            if situation is not None:
                old = self.guard.model.measured(situation, snapshot.plan, least=1)
                self.adopted = Adopted(proposal=proposal, situation=situation, old=old)

        self.hands.adopt(proposal, done)

    def beside_calls(self, proposal: Proposal, snapshot: Snapshot) -> None:
        """Made ready for later, or its regions measured: no call runs on it yet."""
        self.building = proposal.plan
        start_s = monotonic()
        measuring = proposal.how is How.MEASURE

        def done(refusal: Refusal | None) -> None:
            if measuring:
                self.building = None
                self.guard.measured(min(LONGEST_BUILD_S, monotonic() - start_s))
            else:
                self._built(start_s)
            if refusal is not None:
                self.refuse(proposal, snapshot, refusal)
            else:
                why = "measured" if measuring else "stands by"
                self._tell(proposal, snapshot.situation, snapshot, kept=True, why=why)

        (self.hands.measure if measuring else self.hands.stand_by)(proposal, done)

    def begin_trial(self, proposal: Proposal, snapshot: Snapshot) -> None:
        self.building = proposal.plan
        credit_s = self.guard.credit_s
        start_s = monotonic()

        def done(refusal: Refusal | None) -> None:
            if refusal is None:
                self.trial = Trial(proposal=proposal, credit_s=credit_s)
            else:
                self.refuse(proposal, snapshot, refusal)
            self._built(start_s)

        self.hands.begin_trial(proposal, credit_s, done)

    def refuse(self, proposal: Proposal, snapshot: Snapshot, refusal: Refusal) -> None:
        why = f"{REFUSED if refusal.lasting else NOT_NOW}: {refusal.why}"
        self.guard.refused(proposal.plan.fingerprint, snapshot.at_s)
        self._tell(proposal, snapshot.situation, snapshot, kept=False, why=why)

    def told_apart(
        self, proposal: Proposal, snapshot: Snapshot, other: str, gain: float, calls: int
    ) -> None:
        """It took turns with another that was better, without a trial."""
        situation = snapshot.situation
        if situation is not None:
            compared = self._related(situation, proposal.plan, other, gain, calls)
            why = f"{_told(gain, 'faster', 'slower')} over {calls} calls in turns"
            self._tell(
                proposal, situation, snapshot, kept=False, why=why, gain=gain, compared=compared
            )

    def _built(self, start_s: float) -> None:
        self.building = None
        self.guard.built(min(LONGEST_BUILD_S, monotonic() - start_s))

    def follow(self, snapshot: Snapshot) -> None:
        """What the last calls tell about whatever is under way."""
        if self.trial is not None:
            self._follow(self.trial, snapshot)
        if self.adopted is not None:
            self._measure_gain(self.adopted, snapshot)

    def _follow(self, trial: Trial, snapshot: Snapshot) -> None:
        """Until the difference is clear, the credit is used up, or the situation is another."""
        newcomer = trial.proposal.plan.fingerprint
        trial.situation = trial.situation or snapshot.situation
        if snapshot.served_s > 0 or trial.last_s is None:
            trial.last_s = snapshot.at_s
        for sample in snapshot.samples:
            if sample.situation == trial.situation:
                mine = sample.plan == newcomer
                (trial.new if mine else trial.old).extend(self.guard.costs_of(sample))
                (trial.new_s if mine else trial.old_s).extend(sample.seconds)
        over = self._why_over(trial, snapshot)
        found = None if over == OVERTAKEN else verdict(trial.old, trial.new)
        early = found is not None and found.new_wins and self.guard.too_soon(snapshot) is not None
        if over is not None or (found is not None and not early):
            self._end(trial, snapshot, found, over or "")

    def _why_over(self, trial: Trial, snapshot: Snapshot) -> str | None:
        """Whether or not there is a verdict."""
        if snapshot.trial != trial.proposal.plan.fingerprint:
            return OVERTAKEN
        if self.guard.is_frozen(snapshot):
            return "calls took longer than they may"
        if self.hands.spent_s >= trial.credit_s:
            return TOO_SLOW
        if trial.situation != snapshot.situation:
            return CHANGED
        if len(trial.old) >= AT_MOST and not trial.new:
            return "no call could be run on it"
        idle_s = snapshot.at_s - (trial.last_s or snapshot.at_s)
        return "no calls came" if idle_s > IDLE_S else None

    def _end(self, trial: Trial, snapshot: Snapshot, found: Verdict | None, over: str) -> None:
        """`over` says why a trial ends whatever the verdict would be."""
        wins = found is not None and found.new_wins and not over
        gain = None if found is None else times_as_fast(trial.old_s, trial.new_s)
        why = over or ("" if found is None or gain is None else _why(found, gain, trial))
        cost_s = self.hands.end_trial(keep_new=wins, why=why, gain=gain)
        plan, too_slow = trial.proposal.plan.fingerprint, over == TOO_SLOW and not wins
        self.guard.tried(plan, cost_s=cost_s, too_slow=too_slow, at_s=snapshot.at_s)
        if wins:
            self.guard.switched(snapshot)
        self.trial = None
        compared = self._compare(trial, snapshot.plan) if found is not None else None
        self._tell(
            trial.proposal,
            trial.situation,
            snapshot,
            kept=wins,
            why=why,
            gain=gain,
            compared=compared,
        )

    def _compare(self, trial: Trial, other: str) -> Compared | None:
        """At the same time, so it tells more than what each took at different ones."""
        if trial.situation is None or not trial.old_s or not trial.new_s:
            return None
        gain = times_as_fast(trial.old_s, trial.new_s)
        return self._related(trial.situation, trial.proposal.plan, other, gain, len(trial.new_s))

    def _related(
        self, situation: Situation, plan: Plan, other: str, gain: float, calls: int
    ) -> Compared:
        self.guard.model.relate(situation, plan.fingerprint, other, gain, calls)
        return Compared(other=other, times_as_fast=gain, calls=calls)

    def _measure_gain(self, adopted: Adopted, snapshot: Snapshot) -> None:
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
        situation = adopted.situation
        self._tell(adopted.proposal, situation, snapshot, kept=True, why="serves", gain=gain)

    def _tell(
        self,
        proposal: Proposal,
        situation: Situation | None,
        snapshot: Snapshot,
        *,
        kept: bool,
        why: str,
        gain: float | None = None,
        compared: Compared | None = None,
    ) -> None:
        outcome = Outcome(
            plan=proposal.plan.fingerprint,
            how=proposal.how,
            kept=kept,
            why=why,
            situation=situation,
            at_s=max(0.0, snapshot.at_s - self._began_s),
            reason=proposal.reason,
            predicted_gain=proposal.gain,
            measured_gain=gain,
            compared=compared,
        )
        self.outcomes.append(outcome)


def _why(found: Verdict, gain: float, trial: Trial) -> str:
    """By its time; where the objective weighs something else, too, by what it costs first."""
    calls = f"over {len(trial.new)} calls each in turns"
    if abs(found.gain / gain - 1) < ALIKE:
        return f"{_told(gain, 'faster', 'slower')} {calls}"
    cost = f"{_told(found.gain, 'less', 'more')} by the objective"
    return f"{cost}, {_told(gain, 'faster', 'slower')} {calls}"


def _told(gain: float, better: str, worse: str) -> str:
    share = 1 / gain - 1
    return f"{-share:.1%} {better}" if share < 0 else f"{share:.1%} {worse}"
