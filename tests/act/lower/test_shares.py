"""How many rows each engine gets."""

import pytest

from gearshift.act.lower.shares import Shares


def settled(num_engines: int = 2) -> Shares:
    """Past the lopsided first ones."""
    shares = Shares(num_engines)
    for _ in range(num_engines):
        shares.of(8)
    return shares


def test_shares_as_said_stay() -> None:
    shares = Shares(2, fixed=(3, 1))
    assert shares.of(8) == [6, 2]
    for _ in range(50):
        shares.note(0, 6, 10.0)
        shares.note(1, 2, 0.1)
    assert shares.of(8) == [6, 2]


@pytest.mark.parametrize(("num_rows", "expected"), [(8, [[7, 1], [1, 7]]), (1, [[1, 0], [0, 1]])])
def test_the_first_ones_are_lopsided_both_ways(num_rows: int, expected: list[list[int]]) -> None:
    shares = Shares(2)
    assert sorted([shares.of(num_rows), shares.of(num_rows)]) == sorted(expected)
    assert shares.of(8) == [4, 4]


def test_shares_follow_an_engine_that_slows_down_and_recovers() -> None:
    shares = settled()

    def live(speeds: list[float], num_calls: int) -> list[int]:
        for _ in range(num_calls):
            rows = shares.of(8)
            for member, count in enumerate(rows):
                if count:
                    shares.note(member, count, count / speeds[member])
                else:
                    shares.left_out(member)
        return shares.of(8)

    assert live([1.0, 1.0], 5) == [4, 4]
    assert live([1.0, 0.34], 12) == [6, 2]
    assert live([1.0, 1.0], 12) == [4, 4]


def test_an_engine_left_out_is_asked_again() -> None:
    shares = settled()
    shares.note(0, 1, 1.0)
    shares.note(1, 1, 100.0)
    assert shares.of(4) == [4, 0]
    for _ in range(300):
        rows = shares.of(4)
        if rows[1]:
            break
        shares.note(0, rows[0], float(rows[0]))
        shares.left_out(1)
    assert rows[1] > 0


def test_who_came_to_a_core_is_expected_to_take_half_of_it() -> None:
    """Before a call shows it: a plan that stood by knows only what was before."""
    shares = Shares(2, cores=(frozenset({0}), frozenset({1})))
    shares.rehearsed()
    for member in (0, 1):
        shares.note(member, 4, 0.4)
    shares.expect(frozenset({1}))
    assert shares.of(9) == [6, 3]
    for _ in range(10):
        shares.note(1, 3, 0.3)
    seen = shares.of(9)
    shares.expect(frozenset({1}))
    assert shares.of(9) == seen != [6, 3], "what is no news takes nothing back"
    shares.expect(frozenset())
    assert shares.of(8) == [4, 4]


def test_shares_that_are_set_expect_nothing() -> None:
    shares = Shares(2, fixed=(1, 1), cores=(frozenset({0}), frozenset({1})))
    shares.expect(frozenset({1}))
    assert shares.of(8) == [4, 4]
