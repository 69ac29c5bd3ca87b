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
from gearshift.decide.split.profiling import Experience
from gearshift.decide.split.sight import view_of
from gearshift.decide.split.view import SplitView
from gearshift.ir.snapshot import Sample, Situation, Snapshot
from gearshift.plan.plan import Plan

Choices = Mapping[int, Plan]
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
        mine = [s for s in snapshot.samples if s.situation.signature == situation.signature]
        place = (situation.signature, backend)
        self._remember(place, mine, choices[backend])
        view = self._view(snapshot, situation, backend, choices[backend], options.plans)
        if view is None:
            return None
        self._learn(place, mine, view, options.plans)
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

    def _view(
        self,
        snapshot: Snapshot,
        situation: Situation,
        backend: str,
        legal: Choices,
        plans: Mapping[str, Plan],
    ) -> SplitView | None:
        alone_s = self.account.alone_s(situation, backend, plans)
        if alone_s is None or not legal:
            return None
        in_force = plans.get(snapshot.plan)
        action = None if in_force is None else self.account.subject.action_of(in_force)
        return view_of(
            snapshot,
            self.account.subject,
            in_force=BOTH if action is None else action,
            legal=legal,
            alone_s=alone_s,
            bandwidth_bytes_s=self._bandwidth_bytes_s(),
            experience=self._experiences[situation.signature, backend],
        )

    def _learn(
        self, place: Place, samples: Sequence[Sample], view: SplitView, plans: Mapping[str, Plan]
    ) -> None:
        before, self._before[place] = self._before.get(place), view
        for sample in samples if before is not None else ():
            reward = self.account.reward(sample, plans)
            if reward is not None and before is not None:
                action = self.account.subject.action_of(plans[sample.plan])
                assert action is not None, "only splits are rewarded"
                self.player.learn(before, action, reward.total, view)

    def _remember(self, place: Place, samples: Sequence[Sample], choices: Choices) -> None:
        """What calls took on splits that were in view."""
        before = self._before.get(place)
        if before is None:
            return
        for action, plan in choices.items():
            mine = [sample for sample in samples if sample.plan == plan.fingerprint]
            seconds = [s for sample in mine for s in sample.seconds]
            if seconds:
                took_s = sum(seconds) / len(seconds)
                self._experiences[place].note(before, action, took_s)

    def _backend(
        self, situation: Situation, choices: Mapping[str, Choices], plans: Mapping[str, Plan]
    ) -> str | None:
        """Where the fastest one is that was measured here, else the one foreseen to be."""
        model = self.account.model
        measured: dict[str, float] = {}
        foreseen: dict[str, float] = {}
        for backend, known in choices.items():
            for plan in known.values():
                seen = model.measured(situation, plan.fingerprint)
                guess = model.estimate(plan, situation, plans)
                if seen is not None:
                    measured[backend] = min(seen.mean_s, measured.get(backend, seen.mean_s))
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
