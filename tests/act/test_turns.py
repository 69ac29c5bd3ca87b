"""Two plans in turns: what a newcomer may cost is bounded, whatever sizes come."""

from collections.abc import Callable
from typing import Any

import pytest
import torch

from gearshift.act import turns as turns_module
from gearshift.act.executor import Executor
from gearshift.act.turns import BLOCK, TakingTurns
from gearshift.plan import Plan, Region


class Clock:
    def __init__(self) -> None:
        self.now_s = 0.0

    def __call__(self) -> float:
        return self.now_s


class Timed(Executor):
    """Takes so long for an input of so many rows."""

    def __init__(self, name: str, clock: Clock, call_s: Callable[[int], float]) -> None:
        super().__init__(Plan(regions=(Region(ops=(name,)),)))
        self.clock, self.call_s = clock, call_s
        self.rows: list[int] = []

    def __call__(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        rows = len(args[0])
        self.rows.append(rows)
        self.clock.now_s += self.call_s(rows)
        return args[0]


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    made = Clock()
    monkeypatch.setattr(turns_module, "perf_counter", made)
    return made


def lost_s(new: Timed, old: Timed) -> float:
    return sum(new.call_s(rows) - old.call_s(rows) for rows in new.rows)


@pytest.mark.capability("core.explore-bound")
@pytest.mark.parametrize("sizes", [[1], [1, 100], [100, 1, 1, 1, 1, 1, 1]])
def test_G2_a_slow_newcomer_is_out_once_its_credit_is_spent(clock: Clock, sizes: list[int]) -> None:
    """Small calls are no savings against large ones."""
    old = Timed("old", clock, lambda rows: 0.001 * rows)
    new = Timed("new", clock, lambda rows: 0.003 * rows)
    turns = TakingTurns(old, new, credit_s=0.5)
    for number in range(2000):
        turns((torch.zeros(sizes[number % len(sizes)], 1),), {})
    one_call_s = new.call_s(max(sizes)) - old.call_s(max(sizes))
    assert 0.5 <= lost_s(new, old) <= 0.5 + one_call_s
    assert turns.spent_s == pytest.approx(lost_s(new, old))


def test_plans_alike_cost_nothing_however_long_they_take_turns(clock: Clock) -> None:
    old, new = (Timed(name, clock, lambda rows: 0.001 * rows) for name in ("old", "new"))
    turns = TakingTurns(old, new, credit_s=0.1)
    for number in range(1000):
        turns((torch.zeros(1 + number % 7, 1),), {})
    assert len(new.rows) > 400
    assert turns.spent_s == pytest.approx(0.0, abs=1e-9)


def test_sizes_never_seen_are_for_the_plan_that_serves(clock: Clock) -> None:
    old, new = (Timed(name, clock, lambda rows: 0.001) for name in ("old", "new"))
    turns = TakingTurns(old, new, credit_s=0.1)
    for rows in range(1, 4 * BLOCK):
        turns((torch.zeros(rows, 1),), {})
    assert not new.rows
    turns(({"a": [1]},), {})
    assert len(old.rows) == 4 * BLOCK, "what cannot be told apart, too"
