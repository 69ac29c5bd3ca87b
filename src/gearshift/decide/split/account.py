"""What splits of a running model take and earn, by the table of what was measured.

Must not know who chooses.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from gearshift.decide.split.reward import SplitReward
from gearshift.decide.split.sight import Subject, earned
from gearshift.ir.snapshot import Sample, Situation
from gearshift.plan.objective import SplitWeights
from gearshift.plan.plan import Plan
from gearshift.predict.cost_model import CostModel


@dataclass(frozen=True, slots=True, kw_only=True)
class Account:
    model: CostModel
    subject: Subject
    weights: SplitWeights

    def alone_s(
        self, situation: Situation, backend: str, plans: Mapping[str, Plan]
    ) -> float | None:
        """What one undisturbed engine takes; if nothing is known of a quiet machine, what it takes
        now."""
        alone = self.subject.alone(plans, backend)
        if alone is None:
            return None
        quiet = Situation(signature=situation.signature, neighbours=0)
        found = [self.model.estimate(alone, where, plans) for where in (quiet, situation)]
        return next((estimate.mean_s for estimate in found if estimate is not None), None)

    def reward(self, sample: Sample, plans: Mapping[str, Plan]) -> SplitReward | None:
        """None of a plan that is no split of the whole model, and none if there is nothing to
        compare it with."""
        plan = plans.get(sample.plan)
        action = None if plan is None else self.subject.action_of(plan)
        if plan is None or action is None:
            return None
        alone_s = self.alone_s(sample.situation, plan.regions[0].rewrite.backend, plans)
        if alone_s is None:
            return None
        return earned(sample, plan, action, self.subject, alone_s, self.weights)
