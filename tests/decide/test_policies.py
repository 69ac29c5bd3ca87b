"""Every policy keeps to the protocol."""

import pytest

from gearshift.act.backends.protocol import thread_counts
from gearshift.decide.bandit import Bandit
from gearshift.decide.check import check_policy
from gearshift.decide.keep import Keep
from gearshift.decide.policy import How, Options, Outcome, Policy, Proposal
from gearshift.decide.proportional import Proportional
from gearshift.decide.rules import Rules
from gearshift.ir.snapshot import Situation, Snapshot
from gearshift.plan import Plan, Region, Rewrite
from gearshift.predict.cost_model import CostModel, NullCostModel, check_cost_model
from gearshift.predict.table import Table


def plain(situation: Situation, plan: Plan, mean_s: float) -> float:
    return mean_s


@pytest.mark.parametrize(
    "policy",
    [Bandit(Table(2), plain), Bandit(NullCostModel(), plain), Keep(), Proportional(), Rules()],
    ids=["bandit", "bandit that knows nothing", "keep", "proportional", "rules"],
)
def test_a_policy_does_its_duty(policy: Policy) -> None:
    check_policy(policy)


@pytest.mark.parametrize("model", [Table(2), NullCostModel()], ids=["table", "null"])
def test_a_cost_model_does_its_duty(model: CostModel) -> None:
    check_cost_model(model)


class Stubborn:
    """Proposes the same, whatever it is told."""

    name = "stubborn"

    def __init__(self, index: int, reason: str, predicted_s: float | None) -> None:
        self.index, self.reason, self.predicted_s = index, reason, predicted_s

    def propose(self, snapshot: Snapshot, options: Options) -> Proposal | None:
        plan = list(options.plans.values())[self.index]
        return Proposal(plan=plan, how=How.TRY, reason=self.reason, predicted_s=self.predicted_s)

    def learn(self, outcome: Outcome) -> None:
        return None


@pytest.mark.parametrize(
    ("policy", "said"),
    [
        (Stubborn(0, "why not", None), "masked"),
        (Stubborn(1, "", None), "no reason"),
        (Stubborn(1, "why not", float("nan")), "predicts nan"),
    ],
)
def test_the_checker_finds_what_is_wrong(policy: Policy, said: str) -> None:
    with pytest.raises(AssertionError, match=said):
        check_policy(policy)


@pytest.mark.parametrize("policy", [Proportional, Rules])
@pytest.mark.parametrize(("cores", "neighbours", "threads"), [(2, 1, 1), (4, 1, 3), (8, 3, 4)])
def test_threads_are_as_many_as_neighbours_leave_cores_or_nearly(
    policy: type[Policy], cores: int, neighbours: int, threads: int
) -> None:
    counts = thread_counts(cores)
    plans = [
        Plan(regions=(Region(ops=("a",), rewrite=Rewrite(backend="onnxruntime", threads=n)),))
        for n in counts
    ]
    options = Options(plans={plan.fingerprint: plan for plan in plans}, num_cores=cores)
    situation = Situation(signature="x", neighbours=neighbours)
    snapshot = Snapshot(at_s=1.0, plan=plans[0].fingerprint, trial=None, situation=situation)
    chosen = policy()
    proposal = chosen.propose(snapshot, options)
    assert proposal is not None
    assert proposal.plan.regions[0].rewrite.threads == threads
    lost = proposal.plan.fingerprint
    chosen.learn(Outcome(plan=lost, how=How.TRY, kept=False, why="2% slower", situation=situation))
    again = chosen.propose(snapshot, options)
    assert again is None or again.plan.fingerprint != lost, "what lost rests"
