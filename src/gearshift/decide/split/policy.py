"""A player as a policy: with every snapshot it sees a view, names a split, and learns what the last
one earned.

Must not know which player.
"""

from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence

from gearshift.decide.losers import Losers
from gearshift.decide.policy import How, Options, Outcome, Proposal
from gearshift.decide.split.account import Account
from gearshift.decide.split.actions import BOTH, NAMES
from gearshift.decide.split.players import Player
from gearshift.decide.split.profiling import Experience, seen
from gearshift.decide.split.sight import engines_of
from gearshift.decide.split.view import SplitView
from gearshift.ir.snapshot import Sample, Situation, Snapshot
from gearshift.plan.plan import Plan

Choices = Mapping[int, Plan]
Ran = Sequence[tuple[int, Sample]]
"""What calls took on each split that ran."""
Place = tuple[str, str]
"""A signature and a backend: what calls take there tells nothing of other sizes."""


class SplitPolicy:
    """On the backend that is fastest here, as far as is known; the other one is tried once."""

    def __init__(
        self,
        player: Player,
        account: Account,
        bandwidth_bytes_s: Callable[[], float | None] = lambda: None,
    ) -> None:
        self.name, self.player, self.account = player.name, player, account
        self._bandwidth_bytes_s = bandwidth_bytes_s
        self._losers, self._now_s = Losers(), 0.0
        self._before: dict[Place, SplitView] = {}
        self._experiences: dict[Place, Experience] = defaultdict(Experience)

    def propose(self, snapshot: Snapshot, options: Options) -> Proposal | None:
        situation, self._now_s = snapshot.situation, snapshot.at_s
        if situation is None:
            return None
        usable = self._losers.without(options.allowed, situation, self._now_s)
        in_force = options.plans.get(snapshot.plan)
        named = {plan.fingerprint: plan for plan in usable}
        if in_force is not None:
            named.setdefault(in_force.fingerprint, in_force)
        choices = self.account.subject.choices(named)
        backend = self._backend(situation, choices, options.plans)
        if backend is None:
            return None
        alone_s = self.account.alone_s(situation, backend, options.plans)
        if alone_s is None:
            return None
        ran = self._ran(snapshot, situation, backend, options.plans)
        place = (situation.signature, backend)
        view = self._seen(snapshot, place, choices[backend], in_force, ran, alone_s)
        self._learn(place, ran, view, options.plans)
        if snapshot.trial is not None:
            return None
        action = self.player.choose(view)
        plan = choices[backend].get(action)
        if plan is None:
            return None
        why = f"{self.name}: {NAMES[action]} is best for {situation}"
        if plan.fingerprint == snapshot.plan:
            other = self._untried(situation, backend, action, choices)
            if other is None:
                return None
            plan, why = other, f"{self.name}: {NAMES[action]} by another backend"
        return self._proposal(plan, why, snapshot, situation, options.plans)

    def learn(self, outcome: Outcome) -> None:
        self._losers.learn(outcome, self._now_s)

    def _proposal(
        self,
        plan: Plan,
        why: str,
        snapshot: Snapshot,
        situation: Situation,
        plans: Mapping[str, Plan],
    ) -> Proposal:
        model = self.account.model
        new = model.estimate(plan, situation, plans)
        old = model.measured(situation, snapshot.plan)
        known = model.measured(situation, plan.fingerprint) is not None
        return Proposal(
            plan=plan,
            how=How.ADOPT if known else How.TRY,
            reason=why,
            predicted_s=None if new is None else new.mean_s,
            current_s=None if old is None else old.mean_s,
        )

    def _ran(
        self, snapshot: Snapshot, situation: Situation, backend: str, plans: Mapping[str, Plan]
    ) -> Ran:
        """Calls of these sizes, on splits by this backend."""
        found = []
        for sample in snapshot.samples:
            plan = plans.get(sample.plan)
            action = None if plan is None else self.account.subject.action_of(plan)
            if plan is None or action is None or plan.regions[0].rewrite.backend != backend:
                continue
            if sample.situation.signature == situation.signature:
                found.append((action, sample))
        return found

    def _seen(
        self,
        snapshot: Snapshot,
        place: Place,
        legal: Choices,
        in_force: Plan | None,
        ran: Ran,
        alone_s: float,
    ) -> SplitView:
        """With what is known from the last calls."""
        subject, experience = self.account.subject, self._experiences[place]
        engines = engines_of(snapshot, subject, self._bandwidth_bytes_s())
        experience.see(engines)
        for done, sample in ran:
            took_s = sum(sample.seconds) / len(sample.seconds)
            experience.note(subject, engines, done, alone_s=alone_s, took_s=took_s)
        action = None if in_force is None else subject.action_of(in_force)
        return seen(
            subject,
            engines,
            in_force=BOTH if action is None else action,
            legal=sorted(legal),
            alone_s=alone_s,
            experience=experience,
        )

    def _learn(self, place: Place, ran: Ran, view: SplitView, plans: Mapping[str, Plan]) -> None:
        before, self._before[place] = self._before.get(place), view
        for action, sample in ran if before is not None else ():
            reward = self.account.reward(sample, plans)
            if reward is not None and before is not None:
                self.player.learn(before, action, reward.total, view)

    def _backend(
        self, situation: Situation, choices: Mapping[str, Choices], plans: Mapping[str, Plan]
    ) -> str | None:
        """Where the fastest one is that was measured here, else the one foreseen to be."""
        model = self.account.model
        measured: dict[str, float] = {}
        foreseen: dict[str, float] = {}
        for backend, known in choices.items():
            for plan in known.values():
                real = model.measured(situation, plan.fingerprint)
                guess = model.estimate(plan, situation, plans)
                if real is not None:
                    measured[backend] = min(real.mean_s, measured.get(backend, real.mean_s))
                if guess is not None:
                    foreseen[backend] = min(guess.mean_s, foreseen.get(backend, guess.mean_s))
        best = measured or foreseen
        return min(best, key=lambda backend: best[backend], default=None)

    def _untried(
        self, situation: Situation, backend: str, action: int, choices: Mapping[str, Choices]
    ) -> Plan | None:
        """The same split by another backend, if that was never measured here."""
        for other, known in choices.items():
            plan = known.get(action)
            if other == backend or plan is None:
                continue
            if self.account.model.measured(situation, plan.fingerprint) is None:
                return plan
        return None
