"""Ratios of `gearshift bench split`."""

import pytest

from gearshift.bench.score import Slices
from gearshift.bench.split_score import best_s, settled, summary_of


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


def case(engines: str, ours: float) -> dict[str, object]:
    return {
        "case": {"engines": engines, "unseen": engines == "2:1"},
        "oracle_s": 1.0,
        "players_oracle_s": 1.0,
        "best_fixed_s": 2.0,
        "by_itself": {"of_oracle": ours},
        "players": {"share": {"of_oracle": 0.5}},
    }


def test_a_summary_of_all() -> None:
    one = {"calls_to_follow": [30, 20], "regret": 0.05}
    never = {"calls_to_follow": [30, None], "regret": 0.5}
    steps = [
        {"steps": {"rows": one, "by itself": one}},
        {"steps": {"rows": one, "by itself": never}},
    ]
    model = dict.fromkeys(("vs_best_static", "p95_vs_best_static", "vs_best_peer"), 1.2)
    about = {"trace": "quiet", "batch": 8}
    models = [
        {"case": {**about, "start": "warm"}, "of_oracle": 0.9, **model},
        {"case": {**about, "start": "cold"}, "of_oracle": 0.1, **model},
    ]
    found = summary_of([case("1:1", 0.8), case("2:1", 0.9)], steps, models)
    assert found["engines"]["1:1"] == pytest.approx(
        {"by itself": 0.8, "best fixed": 0.5, "share": 0.5}
    )
    assert found["unseen"] == pytest.approx({"by itself": 0.9, "best fixed": 0.5, "share": 0.5})
    assert found["steps"]["rows"] == {"calls_to_follow_at_most": 30, "regret_at_most": 0.05}
    assert found["steps"]["by itself"] == {"calls_to_follow_at_most": None, "regret_at_most": 0.5}
    assert found["models"]["quiet, batch 8"]["of_oracle"]["minimum"] == 0.9
