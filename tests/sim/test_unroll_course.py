"""One call of a stack of recurrent layers, against examples computed by hand."""

import pytest

from gearshift.decide.unroll.view import Settings
from gearshift.ir.recurrent import LSTM, Stack
from gearshift.plan.unroll import AT_ONCE, ROLLED, Steps
from gearshift.sim.unroll_course import (
    ALONE,
    HAND_OVER_S,
    TEAM,
    WIDE,
    Call,
    Crowd,
    Engines,
    Ran,
    chunks_of,
    layers_of,
    run,
)
from gearshift.sim.unroll_profiles import Pace

BY_2, BY_4 = Steps(then=2), Steps(then=4)
FLAT = Pace((((1.0,) * 5, (0.5,) * 5),))
"""A call takes a second, each step half of one, whatever the rows."""
BY_ROWS = Pace((((1.0,) * 5, (0.0, 0.1, 0.2, 0.3, 0.4)),))
RAGGED = Call(lengths=(10, 7, 6, 2))
EIGHT = Call(lengths=(8,))


def stack(num_layers: int, num_directions: int = 1) -> Stack:
    sizes = {"input_size": 4, "hidden_size": 4}
    return Stack(kind=LSTM, num_layers=num_layers, num_directions=num_directions, **sizes)


def ran(settings: Settings, engines: Engines, call: Call = EIGHT, num_directions: int = 1) -> Ran:
    paces = (FLAT,) * len(settings)
    layers = layers_of(call, settings, settings, paces)
    return run(stack(len(settings), num_directions), engines, call.crowd, layers)


def ends(call: Call, before: Steps, after: Steps | None = None) -> list[int]:
    return [chunk.end for chunk in chunks_of(call, before, after or before, FLAT)]


def crowded(before: tuple[int, int], after: tuple[int, int], at_s: float) -> Call:
    return Call(lengths=(8,), crowd=Crowd(before=before, after=after, at_s=at_s))


@pytest.mark.parametrize(
    ("steps", "expected"),
    [
        (ROLLED, [1, 2, 3, 4, 5, 6]),
        (BY_4, [4, 6]),
        (AT_ONCE, [6]),
        (Steps(then=64), [6]),
        (Steps(first=4, then=1), [4, 5, 6]),
    ],
    ids=str,
)
def test_where_chunks_end(steps: Steps, expected: list[int]) -> None:
    assert ends(Call(lengths=(6, 6)), steps) == expected


def test_chunks_of_a_ragged_batch_end_where_they_would_in_a_call() -> None:
    assert ends(RAGGED, BY_4) == [4, 8, 10]
    assert ends(RAGGED, BY_2) == [2, 4, 6, 8, 10]
    assert ends(RAGGED, ROLLED) == list(range(1, 11))
    assert ends(RAGGED, AT_ONCE) == [7, 10], "where a row does"


def test_rows_that_ended_are_not_computed_but_to_the_end_of_their_chunk() -> None:
    work = [sum(c.work_s for c in chunks_of(RAGGED, s, s, BY_ROWS)) for s in (BY_4, BY_2)]
    assert work[0] == pytest.approx((1 + 4 * 0.4) + (1 + 4 * 0.3) + (1 + 2 * 0.1))
    assert work[1] == pytest.approx(5 + 2 * (0.4 + 0.3 + 0.3 + 0.2 + 0.1))
    assert RAGGED.filled_share == pytest.approx(25 / 40)


def test_each_chunk_is_computed_by_the_kernel_that_is_best_for_it() -> None:
    both = Pace((((1.0, 1.0), (1.0, 1.0)), ((4.0, 4.0), (0.5, 0.5))))
    assert both.work_s(2, 1) == 3.0
    assert both.work_s(10, 1) == 9.0
    assert (both.call_s(2, 1), both.call_s(10, 1)) == (1.0, 4.0)


def test_a_new_setting_holds_from_the_next_chunk_on() -> None:
    late = Call(lengths=(8,), reached_share=0.4)
    assert ends(late, BY_2, AT_ONCE) == [2, 4, 8]
    assert ends(late, AT_ONCE, BY_2) == [8], "there is no chunk after it"
    assert ends(Call(lengths=(8,)), AT_ONCE, BY_4) == [4, 8]
    assert ends(late, BY_4, Steps(first=2, then=1)) == [4, 5, 6, 7, 8], "not at the beginning"


def test_on_one_engine_layers_run_one_after_the_other() -> None:
    assert ran((BY_4, BY_4), ALONE).took_s == pytest.approx(12)
    assert ran((AT_ONCE, AT_ONCE), ALONE).took_s == pytest.approx(10)
    mixed = ran((AT_ONCE, BY_2), ALONE)
    assert mixed.took_s == pytest.approx(5 + 8)
    assert mixed.layers_s == pytest.approx((5, 8))
    assert mixed.busy_s == (mixed.took_s,)


def test_over_a_team_chunks_flow_from_one_layer_to_the_next() -> None:
    equal = ran((BY_4, BY_4), TEAM)
    assert equal.took_s == pytest.approx(9 + HAND_OVER_S)
    assert equal.busy_s == pytest.approx((6, 6))
    assert ran((BY_4, AT_ONCE), TEAM).took_s == pytest.approx(6 + 5 + HAND_OVER_S)
    assert ran((BY_2, BY_4), TEAM).took_s == pytest.approx(8 + 3 + HAND_OVER_S)
    assert ran((AT_ONCE, AT_ONCE), TEAM).took_s == pytest.approx(10 + HAND_OVER_S)


def test_an_engine_of_a_team_computes_one_chunk_at_a_time() -> None:
    """The second has two of the three layers: six chunks less the two of the first layer."""
    three = ran((BY_4, BY_4, BY_4), TEAM)
    assert three.took_s == pytest.approx(3 + HAND_OVER_S + 12)
    assert three.layers_s == pytest.approx((6, 6, 6))
    assert three.busy_s == pytest.approx((6, 12))


def test_with_two_directions_a_layer_needs_all_of_both() -> None:
    assert ran((AT_ONCE, BY_4), ALONE, num_directions=2).took_s == pytest.approx(2 * (5 + 6))
    both = ran((AT_ONCE, BY_4), TEAM, num_directions=2)
    assert both.took_s == pytest.approx(5 + 6 + 2 * HAND_OVER_S)
    assert both.busy_s == pytest.approx((11, 11))


def test_neighbours_take_their_share_of_a_core() -> None:
    settings = (BY_4, BY_4)
    assert ran(settings, ALONE, crowded((1, 0), (1, 0), 0.0)).took_s == pytest.approx(24)
    assert ran(settings, ALONE, crowded((0, 2), (0, 2), 0.0)).took_s == pytest.approx(12)
    assert ran(settings, WIDE, crowded((0, 2), (0, 2), 0.0)).took_s == pytest.approx(36)
    team = ran(settings, TEAM, crowded((0, 1), (0, 1), 0.0))
    assert team.took_s == pytest.approx(3 + HAND_OVER_S + 12)


def test_neighbours_come_and_go_in_the_middle_of_a_call() -> None:
    settings = (BY_4, BY_4)
    come = ran(settings, ALONE, crowded((0, 0), (1, 0), 6.0))
    assert come.took_s == pytest.approx(6 + 12)
    assert come.layers_s == pytest.approx((6, 12))
    gone = ran(settings, ALONE, crowded((1, 0), (0, 0), 8.0))
    assert gone.took_s == pytest.approx(8 + (12 - 4))
    later = ran(settings, ALONE, crowded((0, 0), (2, 2), 50.0))
    assert later.took_s == pytest.approx(12)


def test_how_long_a_thread_waited_is_what_others_took() -> None:
    crowd = Crowd(before=(0, 2), after=(1, 2), at_s=1.0)
    assert crowd.delay_share((0,), 4.0) == pytest.approx(0.75 * 0.5)
    assert crowd.delay_share((1,), 4.0) == pytest.approx(2 / 3)
    assert crowd.delay_share((0,), 0.5) == 0
