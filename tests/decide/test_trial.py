"""Two lists of seconds: when it is clear which is faster, and when it is not."""

import random

import pytest

from gearshift.decide.trial import AT_LEAST, AT_MOST, TURN, verdict


def noisy(mean_s: float, count: int, spread: float = 0.05) -> list[float]:
    draw = random.Random(1)
    return [mean_s * (1 + draw.gauss(0, spread)) for _ in range(count)]


def test_a_few_calls_are_too_few() -> None:
    assert verdict([1.0] * (AT_LEAST - 1), [0.8] * 50) is None


def test_a_few_are_enough_if_one_is_faster_by_far() -> None:
    """Where a call takes a second, nobody wants to wait for six."""
    found = verdict([1.0, 0.9, 1.1], [0.1] * 4)
    assert found is not None
    assert found.new_wins
    lost = verdict([0.1] * 4, [1.0] * 3)
    assert lost is not None
    assert not lost.new_wins
    assert verdict([1.0, 0.9, 0.15], [0.1] * 4) is None, "one call says otherwise"


@pytest.mark.parametrize(("new_s", "wins"), [(0.5, True), (2.0, False)])
def test_a_clear_difference_is_seen_at_once(new_s: float, wins: bool) -> None:
    found = verdict(noisy(1.0, AT_LEAST), noisy(new_s, AT_LEAST))
    assert found is not None
    assert found.new_wins == wins
    assert found.gain == pytest.approx(1 / new_s, rel=0.1)


def test_equals_stay_as_they_are_in_the_end() -> None:
    assert verdict(noisy(1.0, 10, 0.3), noisy(1.0, 10, 0.3)[::-1]) is None
    found = verdict(noisy(1.0, AT_MOST, 0.3), noisy(1.0, AT_MOST, 0.3)[::-1])
    assert found is not None
    assert not found.new_wins


def test_somebody_elses_hiccup_decides_nothing() -> None:
    new = noisy(0.8, 20)
    new[3] = 40.0
    found = verdict(noisy(1.0, 20), new)
    assert found is not None
    assert found.new_wins


def test_a_hiccup_that_lasts_for_a_turn_decides_nothing_soon() -> None:
    """All of its calls agree, the turns do not."""
    old = noisy(1.0, AT_LEAST, 0.01)
    new = noisy(1.3, TURN, 0.01) + noisy(1.0, AT_LEAST - TURN, 0.01)
    assert verdict(old, new) is None


def test_a_slow_change_of_the_machine_that_both_see_hides_nothing() -> None:
    pace = [1 + 0.1 * (i // TURN) for i in range(5 * TURN)]
    found = verdict(pace, [0.8 * value for value in pace])
    assert found is not None
    assert found.new_wins
    assert found.gain == pytest.approx(1.25)


def test_six_calls_are_enough_if_the_difference_is_large() -> None:
    assert verdict(noisy(1.0, 6, 0.01), noisy(0.9, 6, 0.01)) is None
    found = verdict(noisy(1.0, 6, 0.01), noisy(0.7, 6, 0.01))
    assert found is not None
    assert found.new_wins
