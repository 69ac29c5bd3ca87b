"""What was formed and measured by one start is known to the next."""

import pytest
from decide.regions.test_former import ORT, QUIET, ROOFLINE, ROOT, WHOLE, row, snapshot

from gearshift.decide.bandit import Bandit
from gearshift.decide.mind import Mind
from gearshift.decide.regions.forming import Forming
from gearshift.decide.rewrite.players import Measured
from gearshift.observe.store import Store, memory_store
from gearshift.plan import Objective, Plan, Region

KEY = {"machine": "m", "versions": "v", "graph": "g"}
FORMED = Plan(
    regions=(
        Region(ops=("a",), rewrite=ORT),
        Region(ops=("b1", "b2")),
        Region(ops=("c",), rewrite=ORT),
    )
)


def start(store: Store, plans: tuple[Plan, ...] = (WHOLE,), **forming: int) -> Mind:
    mind = Mind(
        policy=Bandit.name,
        plans={plan.fingerprint: plan for plan in plans},
        num_cores=2,
        objective=Objective(),
        store=store,
        key=KEY,
        pieces=ROOT,
        signature=QUIET.signature,
        forming=Forming(**forming),
    )
    mind.table.roofline = ROOFLINE
    return mind


def test_a_plan_formed_anew_is_an_option_of_the_next_start() -> None:
    store = memory_store()
    first = start(store, (WHOLE, FORMED))
    first.see(snapshot(FORMED, {"a": 0.001, "b1": 0.001, "c": 0.001}))
    first.save()
    second = start(store)
    assert FORMED.fingerprint in second.options.plans
    answer = second.see(snapshot(WHOLE, {"a": 0.052}))
    assert answer.plans == (FORMED,)
    assert FORMED.fingerprint in {sample.plan for sample in answer.recalled}
    assert second.see(snapshot(WHOLE, {"a": 0.052})).plans == (), "told once"


def test_a_plan_of_another_model_is_none() -> None:
    store = memory_store()
    strange = Plan(regions=(Region(ops=("x", "y"), rewrite=ORT),))
    first = start(store, (WHOLE, strange))
    first.see(snapshot(strange, {"x": 0.001}))
    first.save()
    assert strange.fingerprint not in start(store).options.plans


def test_regions_measured_once_are_known_to_the_next_start() -> None:
    store = memory_store()
    part = Region(ops=("a",))
    first = start(store)
    first.see(snapshot(WHOLE, {"a": 0.052}, rows=(row(part, 0.003),)))
    first.save()
    second = start(store)
    assert isinstance(second.policy, Bandit)
    assert second.policy.former is not None
    known = second.policy.former.ledger.alone_s
    assert known[QUIET.signature, "id a", part.setting] == pytest.approx(0.003)


def test_without_an_agent_all_that_is_quick_is_measured(caplog: pytest.LogCaptureFixture) -> None:
    mind = start(memory_store(), rl_training_epochs=0)
    assert isinstance(mind.policy, Bandit)
    assert mind.policy.former is not None
    assert isinstance(mind.policy.former.player, Measured)
    assert not caplog.text
