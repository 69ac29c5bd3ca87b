"""How many neighbours there are, from readings as they were seen on two cores."""

import pytest

from gearshift.observe.neighbours import Neighbours, SpareCore, wanted_by_us


def seen(readings: list[tuple[float, float]]) -> list[int]:
    neighbours = Neighbours(2)
    return [neighbours.update(used=used, ready=ready) for used, ready in readings]


@pytest.mark.parametrize(
    ("used", "ready", "count"),
    [(0.02, 0.5, 0), (0.5, 0.9, 1), (1.0, 1.0, 1), (1.0, 2.0, 2), (1.4, 2.1, 2), (1.5, 5.0, 2)],
)
def test_the_count_does_not_depend_on_who_got_what(used: float, ready: float, count: int) -> None:
    assert seen([(used, ready)] * 10)[-1] == count


def test_a_moments_work_is_no_neighbour() -> None:
    assert set(seen([(0.0, 0.0), (1.0, 1.0), (0.0, 0.0), (0.9, 1.0), (0.1, 0.0)])) == {0}


def test_it_is_seen_and_forgotten_within_two_readings() -> None:
    assert seen([(0.0, 0.0)] + [(0.9, 1.0)] * 3 + [(0.0, 0.0)] * 3) == [0, 0, 1, 1, 1, 0, 0]


def test_one_that_comes_is_not_taken_for_two() -> None:
    """The shell that starts a program is ready to run beside it for a moment."""
    coming = [(0.0, 0.0), (1.4, 3.0), (1.2, 2.0)] + [(0.8, 1.0)] * 9
    assert set(seen(coming)) == {0, 1}


def test_two_that_come_are_seen_within_four_readings() -> None:
    assert seen([(1.4, 2.0)] * 4)[-1] == 2


def test_one_reading_that_is_far_off_changes_nothing() -> None:
    assert set(seen([(0.8, 1.0)] * 9 + [(0.8, 5.0)] + [(0.8, 1.0)] * 9)[2:]) == {1}


def test_without_a_count_of_what_is_ready_what_is_used_must_do() -> None:
    neighbours = Neighbours(2)
    for _ in range(3):
        neighbours.update(used=0.9, ready=None)
    assert neighbours.count == 1
    assert neighbours.update(used=None, ready=None) == 1


def test_what_we_want_is_what_we_get_and_wait_for() -> None:
    assert wanted_by_us(1.0, 0.5) == 2.0
    assert wanted_by_us(2.0, 0.0) == 2.0


def test_of_many_only_about_how_many_matters() -> None:
    neighbours = Neighbours(64)
    counts = [neighbours.update(used=20.0, ready=ready) for ready in (17, 21, 19, 15, 22, 18) * 5]
    assert set(counts[4:]) == {16}
    for _ in range(10):
        neighbours.update(used=50.0, ready=60.0)
    assert neighbours.count == 64


def test_the_core_others_use_least_is_spare_while_they_want_some_but_not_all() -> None:
    spare = SpareCore()
    found = []
    for neighbours, used in ((0, (0, 0)), (1, (0.5, 0.1)), (2, (0.5, 0.4)), (1, (0.1, 0.6))):
        spare.update(neighbours, dict(enumerate(used)))
        found.append(spare.core)
    assert found == [None, 1, None, 0]


def test_the_spare_core_changes_only_if_two_readings_in_a_row_clearly_say_so() -> None:
    spare = SpareCore()
    found = []
    for used in ((0, 0.9), (0.8, 0.1), (0, 0.5), (0.5, 0.4), (0.8, 0.1), (0.7, 0.2)):
        spare.update(1, dict(enumerate(used)))
        found.append(spare.core)
    assert found == [0, 0, 0, 0, 0, 1]


def test_without_readings_by_core_none_is_spare() -> None:
    spare = SpareCore()
    spare.update(1, {})
    assert spare.core is None
