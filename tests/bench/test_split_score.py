"""Ratios of `gearshift bench split`."""

import pytest

from gearshift.bench.score import Slices
from gearshift.bench.split_score import (
    ITSELF,
    best_fixed,
    best_s,
    case_of,
    settled,
    stayed,
    stepped,
    summary_of,
)


def slices(*call_s: float) -> Slices:
    """Two of each."""
    return Slices(call_s=[list(call_s), list(call_s)])


def test_the_best_is_chosen_on_other_slices_than_it_is_told_on() -> None:
    ways = {
        "lucky once": Slices(call_s=[[0.5], [2.0]]),
        "steady": Slices(call_s=[[1.0], [1.0]]),
    }
    assert best_s(ways) == pytest.approx((2.0 + 1.0) / 2)


def test_calls_until_the_last_twenty_are_near_the_oracle() -> None:
    assert settled([1.0] * 30, 1.0) == 20
    assert settled([2.0] * 15 + [1.05] * 40, 1.0) == 26, "half of twenty, and one"
    assert settled([2.0] * 100, 1.0) is None


def test_a_step_is_set_beside_what_any_way_took_at_its_best() -> None:
    """The oracle's two seconds were from short turns: one second was seen."""
    quick = [[2.0] * 30 + [1.0] * 70, [4.0] * 100]
    found = stepped({"quick": quick, "slow": [[2.0] * 100, [3.0] * 100]}, [2.0, 3.5])
    assert found["oracle_s"] == [1.0, 3.0]
    assert found["steps"]["quick"]["regret"] == pytest.approx((130 + 400) / 400 - 1)
    assert found["steps"]["slow"]["calls_to_follow"] == [20]
    assert found["steps"]["quick"]["calls_to_follow"] == [None]


def test_for_how_long_they_stay_near_it() -> None:
    assert stayed([2.0] * 15 + [1.0] * 40, 1.0) == 1
    assert stayed([1.0] * 20 + [2.0] * 20, 1.0) == pytest.approx(10 / 21, abs=0.05)
    assert stayed([2.0] * 100, 1.0) == 0


def test_players_are_told_by_the_ways_they_have_the_runtime_by_all() -> None:
    ways = {"none 0": slices(4.0), "rows": slices(2.0), "rows 2:1": slices(2.5)}
    other = {"rows by openvino": slices(1.0)}
    found = case_of(
        {"region": "one"},
        {**ways, **other, ITSELF: slices(1.25)},
        {"share": "rows 2:1", "dqn": "rows"},
        "rows on cpu:0+cpu:1",
    )
    assert found["case"] == {"region": "one"}
    assert (found["oracle"], found["oracle_s"]) == ("rows by openvino", 1.0)
    assert found["players_oracle_s"] == 2.0
    assert found["by_itself"] == {"plan": "rows on cpu:0+cpu:1", "of_oracle": 0.8}
    assert found["players"]["share"] == {"action": "rows 2:1", "of_oracle": 0.8}
    assert found["players"]["dqn"]["of_oracle"] == 1.0


def case(engines: str, ours: float, **ways_s: float) -> dict[str, object]:
    return {
        "case": {"engines": engines, "unseen": engines == "2:1"},
        "ways_s": {"none 0": 2.0, **ways_s},
        "oracle_s": 1.0,
        "players_oracle_s": 1.0,
        "by_itself": {"of_oracle": ours, "plan": "openvino x1 rows" if ours > 0.85 else "openvino"},
        "players": {"share": {"of_oracle": 0.5}},
    }


def test_the_best_fixed_way_is_one_for_all_cases() -> None:
    """Each is best somewhere; what is illegal is undivided, and what follows is not fixed."""
    cases = [
        case("1:1", 1.0, depth=1.0, rows=0.5, **{"rows 1:1": 1.1}),
        case("2:1", 1.0, columns=1.0, rows=0.5, **{"rows 1:1": 1.1}),
    ]
    assert best_fixed(cases) == "rows 1:1"
    assert best_fixed([case("1:1", 1.0, depth=2.5)]) == "none 0"


def test_a_summary_of_all() -> None:
    one = {"calls_to_follow": [30, 20], "stayed": [1.0, 0.8], "regret": 0.05}
    never = {"calls_to_follow": [30, None], "stayed": [0.5, 0.0], "regret": 0.5}
    steps = [
        {"steps": {"rows": one, "by itself": one}},
        {"steps": {"rows": one, "by itself": never}},
    ]
    model = dict.fromkeys(("vs_eager", "p95_vs_best_static", "vs_best_peer"), 1.2)
    about = {"trace": "quiet", "batch": 8}
    models = [
        {"case": about, "vs_best_static": 0.9, **model},
        {"case": about, "failed": "why"},
    ]
    cases = [case("1:1", 0.8, depth=1.25), case("2:1", 0.9)]
    found = summary_of(cases, steps, models)
    assert found["best_fixed"] == "depth"
    itself = {"by itself": 0.8, "by itself, least": 0.8}
    assert found["engines"]["1:1"] == pytest.approx({**itself, "best fixed": 0.8, "share": 0.5})
    divides = {"by itself": 0.9, "by itself, least": 0.9, "by itself, where it divides (1)": 0.9}
    assert found["unseen"] == pytest.approx({**divides, "best fixed": 0.5, "share": 0.5})
    rows, itself = found["steps"]["rows"], found["steps"]["by itself"]
    assert rows == {
        "of_oracle": pytest.approx(1 / 1.05),
        "calls_to_follow_at_most": 30,
        "stayed_at_least": 0.8,
        "regret_at_most": 0.05,
    }
    assert itself == {
        "of_oracle": pytest.approx((1.05 * 1.5) ** -0.5),
        "calls_to_follow_at_most": None,
        "stayed_at_least": 0.0,
        "regret_at_most": 0.5,
    }
    assert found["models"]["quiet, batch 8"]["vs_best_static"]["minimum"] == 0.9
