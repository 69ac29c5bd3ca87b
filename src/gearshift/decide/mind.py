"""The control plane: sees snapshots, remembers them, proposes. Runs in a process of its own.

Must not know the data plane; everything it is told and says is plain data.
"""

from collections.abc import Mapping
from math import exp

from gearshift.decide.bandit import Bandit
from gearshift.decide.keep import Keep
from gearshift.decide.policy import Options, Outcome, Policy, Proposal
from gearshift.decide.proportional import Proportional
from gearshift.decide.reward import reward
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
SMOOTH = 0.2


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
        self.objective, self.store, self.key = objective, store, dict(key)
        self.table = Table(num_cores)
        self.cpu_s: dict[str, float] = {}
        self._recall()
        self.policy = self._policy(policy)

    def see(self, snapshot: Snapshot) -> Proposal | None:
        if snapshot.cpu_s is not None and snapshot.cpu_s > 0:
            before = self.cpu_s.setdefault(snapshot.plan, snapshot.cpu_s)
            self.cpu_s[snapshot.plan] = before + SMOOTH * (snapshot.cpu_s - before)
        for sample in snapshot.samples:
            plan = self.options.plans.get(sample.plan)
            if plan is not None:
                key = self._plan_key(sample.situation)
                self.store.add_plan(key, plan, sample.seconds, max_error=None)
        return self.policy.propose(snapshot, self.options)

    def hear(self, outcome: Outcome) -> None:
        self.policy.learn(outcome)

    def score(self, plan: Plan, mean_s: float) -> float:
        """A cost in seconds: the time, if nothing but time counts."""
        threads = max((r.rewrite.threads or self.options.num_cores) for r in plan.regions)
        cpu_s = self.cpu_s.get(plan.fingerprint, mean_s * threads)
        return exp(-reward(self.objective, latency_s=mean_s, cpu_s=cpu_s).total)

    def _policy(self, name: str) -> Policy:
        if name == "bandit":
            return Bandit(self.table, self.score)
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
