"""A player as a policy: the bandit chooses how a model runs as a whole; where that unrolls
recurrent layers, the player changes one layer's setting at a time, and learns what came of it.

Must not know which player.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace

from gearshift.decide.bandit import Bandit
from gearshift.decide.policy import How, Options, Outcome, Proposal
from gearshift.decide.unroll.actions import ACTIONS, STAY, applied
from gearshift.decide.unroll.constraints import Discipline
from gearshift.decide.unroll.players import Player
from gearshift.decide.unroll.reward import UnrollReward, UnrollWeights, unroll_reward
from gearshift.decide.unroll.sight import Sight, busiest, is_plainest, with_steps
from gearshift.decide.unroll.view import UnrollView
from gearshift.ir.recurrent import Stack
from gearshift.ir.snapshot import Situation, Snapshot
from gearshift.plan.plan import Plan, Region
from gearshift.predict.cost_model import CostModel

WEIGHTS = UnrollWeights()


@dataclass(frozen=True, slots=True, kw_only=True)
class Subject:
    """What there is to unroll, and within which bounds."""

    stacks: Mapping[str, Stack]
    num_cores: int
    memory_limit: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class _Choice:
    """Waits for what comes of it."""

    region: str
    view: UnrollView
    action: int
    plan: str
    """That it leads to."""


class UnrollPolicy:
    def __init__(self, bandit: Bandit, player: Player, subject: Subject, model: CostModel) -> None:
        self.bandit, self.player, self.subject, self.model = bandit, player, subject, model
        self.name = player.name
        self.reward: UnrollReward | None = None
        """Of the last calls."""
        self._disciplines: dict[str, Discipline] = {}
        self._plan: Plan | None = None
        self._choice: _Choice | None = None

    def propose(self, snapshot: Snapshot, options: Options) -> Proposal | None:
        """What the bandit knows to be better comes first."""
        usual = self.bandit.propose(snapshot, options)
        plan = options.plans.get(snapshot.plan)
        if plan is None or snapshot.situation is None or snapshot.trial is not None:
            return usual
        self._count(plan, snapshot.num_calls)
        if usual is not None and usual.how is How.ADOPT:
            return usual
        return self._another(plan, snapshot, snapshot.situation, options) or usual

    def learn(self, outcome: Outcome) -> None:
        """What lost its trial took longer by so much."""
        self.bandit.learn(outcome)
        choice, compared = self._choice, outcome.compared
        if choice is None or outcome.plan != choice.plan or outcome.kept or compared is None:
            return
        view = choice.view
        assert view.took_s.value is not None, "only calls that were timed lead to a choice"
        took_s = view.took_s.value / compared.times_as_fast
        earned = _earned(view, took_s)
        self.player.learn(view, choice.action, earned.total, view)
        self._choice = None

    def _another(
        self, plan: Plan, snapshot: Snapshot, situation: Situation, options: Options
    ) -> Proposal | None:
        region = busiest(plan, self.subject.stacks, snapshot.layers)
        view = None if region is None else self._view(region, snapshot, situation, options)
        if region is None or view is None:
            return None
        self._see(region, view, snapshot.plan)
        action = self.player.choose(view)
        chosen = ACTIONS[action]
        new = plan if chosen is None else with_steps(plan, region, chosen.layer, chosen.steps)
        self._choice = _Choice(region=region.name, view=view, action=action, plan=new.fingerprint)
        if chosen is None or self.bandit.losers.rests(situation, new.fingerprint, snapshot.at_s):
            return None
        known = self.model.measured(situation, new.fingerprint)
        return Proposal(
            plan=new,
            how=How.TRY if known is None else How.ADOPT,
            reason=f"{self.name}: {region.name} {chosen} may be better for {situation}",
            predicted_s=None if known is None else known.mean_s,
            current_s=view.took_s.value,
        )

    def _view(
        self, region: Region, snapshot: Snapshot, situation: Situation, options: Options
    ) -> UnrollView | None:
        reference_s = self._reference_s(region, snapshot, situation, options)
        if reference_s is None:
            return None
        sight = Sight(
            snapshot=snapshot,
            region=region,
            stack=self.subject.stacks[region.name],
            num_cores=self.subject.num_cores,
            reference_s=reference_s,
        )
        view, limit = sight.view(self._discipline(region.name)), self.subject.memory_limit
        if view is None or limit is None:
            return view
        others_bytes = snapshot.held_bytes - view.footprint.held_bytes(view.settings)
        return replace(view, memory_limit_bytes=max(1, limit - max(0, others_bytes)))

    def _reference_s(
        self, region: Region, snapshot: Snapshot, situation: Situation, options: Options
    ) -> float | None:
        """As far as it was measured or is foreseen; else what a call takes now."""
        quiet = Situation(signature=situation.signature, neighbours=0)
        for plan in options.plans.values():
            if is_plainest(plan, region.name):
                estimate = self.model.estimate(plan, quiet, options.plans)
                if estimate is not None:
                    return estimate.mean_s
        seen = self.model.measured(situation, snapshot.plan)
        return None if seen is None else seen.mean_s

    def _see(self, region: Region, view: UnrollView, plan: str) -> None:
        """What came of the last choice, if it is in force by now."""
        choice = self._choice
        assert view.took_s.value is not None, "a view is of calls that were timed"
        self.reward = _earned(view, view.took_s.value)
        if choice is None or choice.region != region.name:
            return
        stayed = choice.action == STAY and choice.view.settings == view.settings
        if stayed or applied(choice.view.settings, choice.action) == view.settings:
            self.player.learn(choice.view, choice.action, self.reward.total, view)

    def _discipline(self, region: str) -> Discipline:
        layers = self.subject.stacks[region].num_layers
        return self._disciplines.setdefault(region, Discipline(layers))

    def _count(self, plan: Plan, num_calls: int) -> None:
        """Calls that went by, and layers that have another setting than before."""
        before, self._plan = self._plan, plan
        were = {} if before is None else {r.name: r.unroll for r in before.regions}
        for region in plan.regions:
            if region.unroll is None or region.name not in self.subject.stacks:
                continue
            discipline = self._discipline(region.name)
            discipline.called(num_calls)
            old = were.get(region.name)
            if old is not None:
                pairs = zip(old.layers, region.unroll.layers, strict=True)
                for layer in (i for i, (was, now) in enumerate(pairs) if was != now):
                    discipline.switched(layer)


def _earned(view: UnrollView, took_s: float) -> UnrollReward:
    hits = [layer.hit_share.value for layer in view.layers]
    known = [share for share in hits if share is not None]
    return unroll_reward(
        WEIGHTS,
        took_s=took_s,
        reference_s=view.reference_s,
        held_bytes=view.footprint.held_bytes(view.settings),
        memory_limit_bytes=view.memory_limit_bytes,
        hit_share=sum(known) / len(known) if known else None,
    )
