"""Plans that stand by, and which of them go first."""

from types import SimpleNamespace
from typing import Any

from gearshift.act.shelf import MAX_PLANS, Shelf
from gearshift.plan import Plan, Region


def prepared(name: str) -> Any:
    plan = Plan(regions=(Region(ops=(name,)),))
    return SimpleNamespace(executor=SimpleNamespace(plan=plan), variants=(name,))


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
