"""Plans that stand by, and which of them go first."""

from types import SimpleNamespace
from typing import Any

from gearshift.act.shelf import FEW, FEW_BYTES, MAX_PLANS, Shelf
from gearshift.plan import Plan, Region


def prepared(name: str, held_bytes: int = 0) -> Any:
    plan = Plan(regions=(Region(ops=(name,)),))
    executor = SimpleNamespace(plan=plan)
    return SimpleNamespace(executor=executor, variants=(name,), held_bytes=held_bytes)


def test_what_is_not_wanted_stays_only_while_there_is_room() -> None:
    gone: list[Any] = []
    shelf = Shelf(gone.append)
    wanted = [prepared(str(index)) for index in range(MAX_PLANS)]
    loser, late = prepared("loser"), prepared("late")
    for one in wanted[1:]:
        shelf.put(one)
    shelf.put(loser, wanted=False)
    assert not gone
    shelf.put(wanted[0])
    assert gone == [loser]
    shelf.put(late, wanted=False)
    assert gone == [loser, late]
    assert set(shelf.plans()) == {one.executor.plan for one in wanted}


def test_only_a_few_large_plans_stand_by() -> None:
    gone: list[Any] = []
    shelf = Shelf(gone.append)
    large = [prepared(str(index), FEW_BYTES // FEW + 1) for index in range(FEW + 1)]
    for one in large:
        shelf.put(one)
    assert gone == large[:1]
    assert shelf.look(large[1].executor.plan) is large[1]
    assert len(shelf.plans()) == FEW, "looking takes nothing away"
