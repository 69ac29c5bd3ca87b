"""The control plane: sees snapshots, remembers them, proposes. Runs in a process of its own.

Must not know the data plane; everything it is told and says is plain data.
"""

from collections import defaultdict
from collections.abc import Mapping
from math import inf

from gearshift.decide.bandit import Bandit
from gearshift.decide.keep import Keep
from gearshift.decide.policy import Options, Outcome, Policy, Proposal
from gearshift.decide.proportional import Proportional
from gearshift.decide.reward import Costs
from gearshift.decide.rules import Rules
from gearshift.errors import UsageError
from gearshift.ir.snapshot import Situation, Snapshot
from gearshift.observe.store import PlanKey, Store
from gearshift.plan.objective import Objective
from gearshift.plan.plan import Plan
from gearshift.predict.table import Stats, Table

POLICIES = ("bandit", "keep", "proportional", "rules")
TRUSTED = 20
"""What the store tells counts for no more than so many calls: the machine may have changed."""
SAVE_EVERY_S = 2.0


class Mind:
    def __init__(
        self,
        *,
        policy: str,
        plans: Mapping[str, Plan],
        num_cores: int,
        objective: Objective,
        store: Store,
        key: Mapping[str, str],
    ) -> None:
        """`key` names machine, versions and graph in the store."""
        self.options = Options(plans=plans, num_cores=num_cores)
        self.store, self.key = store, dict(key)
        self.costs = Costs(objective, num_cores)
        self.table = Table(num_cores)
        self._unsaved: dict[tuple[Situation, str], list[float]] = defaultdict(list)
        self._saved_s = -inf
        self._recall()
        self.policy = self._policy(policy)

    def see(self, snapshot: Snapshot) -> Proposal | None:
        self.costs.note(snapshot)
        for sample in snapshot.samples:
            self._unsaved[sample.situation, sample.plan] += sample.seconds
        if snapshot.at_s - self._saved_s > SAVE_EVERY_S:
            self._saved_s = snapshot.at_s
            self.save()
        return self.policy.propose(snapshot, self.options)

    def save(self) -> None:
        for (situation, fingerprint), seconds in self._unsaved.items():
            plan = self.options.plans.get(fingerprint)
            if plan is not None:
                self.store.add_plan(self._plan_key(situation), plan, seconds, max_error=None)
        self._unsaved.clear()

    def hear(self, outcome: Outcome) -> None:
        self.policy.learn(outcome)

    def _policy(self, name: str) -> Policy:
        if name == "bandit":
            return Bandit(self.table, self.costs.of)
        simple: dict[str, type[Policy]] = {"keep": Keep, "rules": Rules}
        simple["proportional"] = Proportional
        if name not in simple:
            raise UsageError(f"no policy {name!r}; there are {', '.join(POLICIES)}")
        return simple[name]()

    def _plan_key(self, situation: Situation) -> PlanKey:
        context = f"neighbours {situation.neighbours}"
        return PlanKey(signature=situation.signature, context=context, **self.key)

    def _recall(self) -> None:
        for row in self.store.plans_of(**self.key):
            neighbours = row.key.context.removeprefix("neighbours ")
            if row.fingerprint in self.options.plans and neighbours.isdigit():
                situation = Situation(signature=row.key.signature, neighbours=int(neighbours))
                stats = Stats.of(row.latency.mean_s, row.latency.variance_s2 or 0.0)
                stats.forget(min(TRUSTED, row.latency.count))
                self.table.rows.setdefault(situation, {})[row.fingerprint] = stats
