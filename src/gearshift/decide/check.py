"""What any policy must keep to; strangers can run it on their own.

Must not know any policy.
"""

import math
from collections.abc import Iterator, Mapping

from gearshift.decide.policy import MAX_REFUSALS, REFUSED, How, Options, Outcome, Policy
from gearshift.ir.snapshot import Sample, Situation, Snapshot
from gearshift.plan.plan import Plan, Region
from gearshift.plan.rewrite import Rewrite

CORES, ROUNDS = 2, 30
BACKENDS = ("eager", "onnxruntime", "openvino")


def check_policy(policy: Policy) -> None:
    """Raises AssertionError, saying what was wrong."""
    options = Options(plans=_plans(), num_cores=CORES)
    masked = next(iter(options.plans))
    refused = Outcome(plan=masked, how=How.TRY, kept=False, why=f"{REFUSED}: a test")
    for _ in range(MAX_REFUSALS):
        options.heed(refused)
        policy.learn(refused)
    assert policy.name, "a policy has a name"
    for snapshot in _snapshots(options.plans):
        proposal = policy.propose(snapshot, options)
        if proposal is None:
            continue
        fingerprint = proposal.plan.fingerprint
        assert fingerprint in options.plans, f"{policy.name} proposes a plan that is not offered"
        assert fingerprint in options.allowed, f"{policy.name} proposes a plan that is masked"
        assert proposal.reason, f"{policy.name} gives no reason"
        for seconds in (proposal.predicted_s, proposal.current_s):
            told = seconds is None or (math.isfinite(seconds) and seconds > 0)
            assert told, f"{policy.name} predicts {seconds} s"
        for kept in (True, False):
            how, why = proposal.how, "serves" if kept else "too slow"
            policy.learn(
                Outcome(plan=fingerprint, how=how, kept=kept, why=why, situation=snapshot.situation)
            )


def _plans() -> Mapping[str, Plan]:
    rewrites = [Rewrite(backend=name, threads=t) for name in BACKENDS for t in (None, 1, CORES)]
    plans = [Plan(regions=(Region(ops=("op",), rewrite=rewrite),)) for rewrite in rewrites]
    return {plan.fingerprint: plan for plan in plans}


def _snapshots(plans: Mapping[str, Plan]) -> Iterator[Snapshot]:
    """Before the first call, on every plan, quiet and beside neighbours, during a trial."""
    names = list(plans)
    yield Snapshot(at_s=0.0, plan=names[0], trial=None, situation=None)
    for number in range(ROUNDS):
        situation = Situation(signature=f"x{number % 2}", neighbours=number // 3 % (CORES + 1))
        plan = names[number % len(names)]
        seconds = (0.01 * (1 + number % 4),) * 10
        yield Snapshot(
            at_s=1.0 + number,
            plan=plan,
            trial=names[-1] if number % 5 == 4 else None,
            situation=situation,
            samples=(Sample(plan=plan, situation=situation, seconds=seconds),),
            ready=(plan,),
        )
