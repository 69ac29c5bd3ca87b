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


def lived(shares: Shares, num_rows: int, row_s: list[float], num_calls: int) -> list[list[int]]:
    """What each call gave to whom, where a row takes each engine so long."""
    given = []
    for _ in range(num_calls):
        rows = shares.of(num_rows)
        given.append(rows)
        for member, count in enumerate(rows):
            if count:
                shares.note(member, count, count * row_s[member])
            else:
                shares.left_out(member)
    return given


@pytest.mark.parametrize(("num_rows", "slow_s"), [(2, 3.0), (4, 10.0), (8, 100.0)])
def test_an_engine_left_out_is_asked_again_but_seldom(num_rows: int, slow_s: float) -> None:
    shares = settled()
    lived(shares, num_rows, [1.0, slow_s], 20)
    asked = [rows[1] for rows in lived(shares, num_rows, [1.0, slow_s], 1000)]
    assert max(asked) == 1
    assert 2 <= sum(asked) <= 20
    first, last = sum(asked[:300]), sum(asked[-300:])
    assert last < first, "the longer it is slow, the less often"


def test_an_engine_left_out_that_is_as_fast_again_has_its_share_at_once() -> None:
    shares = settled()
    lived(shares, 4, [1.0, 10.0], 40)
    given = lived(shares, 4, [1.0, 1.0], 100)
    asked = next(call for call, rows in enumerate(given) if rows[1])
    assert given[asked + 1] == [2, 2]
    assert all(rows[1] for rows in given[asked:])


def test_shares_of_nothing_that_are_set_stay() -> None:
    shares = Shares(2, fixed=(1, 0))
    assert lived(shares, 4, [1.0, 1.0], 100) == [[4, 0]] * 100


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
