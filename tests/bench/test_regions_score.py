"""What `gearshift bench regions` makes of the calls it saw."""

from typing import Any

import pytest

from gearshift.bench.regions_score import (
    CALLS,
    Life,
    builds_of,
    case_of,
    over_all,
    shapes_of,
    until_near,
)
from gearshift.bench.score import OURS, PEERS, TWICE, Slices, slices_of
from gearshift.errors import GearshiftError


def life(ready_s: float, first_s: list[float], *warm_s: float) -> Life:
    """Warm, slices of ten calls; the same in all if only one is told."""
    told_s = warm_s if len(warm_s) > 1 else warm_s * 4
    return Life(ready_s=ready_s, first_s=first_s, warm=Slices([[s] * 10 for s in told_s]))


def lives(**changed: Life) -> dict[str, Life]:
    usual = {name: life(1.0, [0.02] * 50, 0.02) for name in (*PEERS, TWICE, OURS)}
    return {**usual, **changed}


def test_calls_not_run_take_what_they_take_when_warm() -> None:
    some = life(2.0, [0.5] * 100, 0.1)
    assert some.until_s(50) == pytest.approx(2.0 + 25.0)
    assert some.until_s(100) == pytest.approx(2.0 + 50.0)
    assert some.until_s(1000) == pytest.approx(2.0 + 50.0 + 900 * 0.1)


def test_ratios_count_what_it_took_to_get_ready() -> None:
    told = case_of(
        lives(
            eager=life(0.0, [0.04] * 50, 0.04),
            openvino=life(10.0, [0.01] * 50, 0.01),
            gearshift=life(5.0, [0.04] * 100, 0.01),
        )
    )
    assert told["best_peer"] == "openvino"
    assert told["vs_best_peer"] == pytest.approx(1.0)
    assert told["vs_eager"] == pytest.approx(4.0)
    assert told["vs_eager_at_100"] == pytest.approx(4.0 / 9.0)
    few, _, many = (told[f"vs_best_peer_at_{n}"] for n in CALLS)
    assert few < 1 < many, "it pays in the long run"
    assert told["noise"] == pytest.approx(1.0)


def test_the_first_call_is_where_a_compiler_pays() -> None:
    told = case_of(lives(**{"torch.compile": life(0.1, [30.0, *[0.005] * 9], 0.005)}))
    assert told["first_call_s"]["torch.compile"] == 30.0
    assert told["until_s"][100]["torch.compile"] == pytest.approx(0.1 + 30.0 + 99 * 0.005)


def test_the_best_peer_is_not_told_by_the_slices_it_was_chosen_on() -> None:
    lucky = {
        "eager": life(0.0, [0.02], 0.01, 0.03, 0.01, 0.03),
        "openvino": life(0.0, [0.02], 0.03, 0.01, 0.03, 0.01),
    }
    assert case_of(lives(**lucky))["best_peer_s"] == pytest.approx(0.03)


@pytest.mark.parametrize(
    ("call_s", "calls"),
    [
        ([1.0] * 30 + [0.1] * 300, 31),
        ([0.1] * 300, 0),
        ([1.0] * 30, None),
        ([0.1] * 100 + [1.0] * 30 + [0.1] * 100, 131),
        ([0.1] * 100 + [1.0] * 30, None),
    ],
    ids=["in time", "at once", "never", "not the first dip", "not any more"],
)
def test_how_many_calls_until_it_is_near_to_stay(call_s: list[float], calls: int | None) -> None:
    assert until_near(call_s, 0.105) == calls


def test_at_another_size_every_call_counts_and_the_best_is_the_best_peer_there() -> None:
    peers = {name: Slices([[0.02] * 20] * 4) for name in PEERS}
    peers["eager"] = Slices([[0.04] * 20] * 4)
    ours = Slices([[0.1, *[0.04] * 29], [0.0205] * 30, [0.0205] * 30, [0.0205] * 30])
    told = shapes_of(ours, peers)
    assert told["first_call_vs_eager"] == told["worst_call_vs_eager"] == pytest.approx(2.5)
    assert told["calls_until_near"] == 31
    assert told["near_after_50"] == 1.0
    assert told["vs_best_peer"] == pytest.approx(0.02 / 0.0205)
    slow = shapes_of(Slices([[0.03] * 40] * 2), peers)
    assert slow["calls_until_near"] is None, "even if it stays as it is"


def answer(call_s: float, **told: Any) -> dict[str, Any]:
    own = {"builds": 3, "cores": [0], "background_cores": [0, 1]}
    return {"call_s": [call_s] * 20, "cpu_s": 0.1, **own, **told}


def test_builds_are_told_beside_the_same_calls_at_rest() -> None:
    told = builds_of([answer(0.012)] * 2, [answer(0.01)] * 2)
    assert told["p95_ratio"] == pytest.approx(1.2)
    assert told["noise"] == pytest.approx(1.0)
    assert told["builds"] == 3


@pytest.mark.parametrize(
    ("told", "why"),
    [({"builds": 0}, "nothing was built"), ({"background_cores": [0]}, "no core but")],
)
def test_builds_that_were_none_are_refused(told: dict[str, Any], why: str) -> None:
    with pytest.raises(GearshiftError, match=why):
        builds_of([answer(0.01, **told)] * 2, [answer(0.01)] * 2)


def test_a_peer_that_failed_is_left_out() -> None:
    found = lives(unformed=life(1.0, [0.02], 0.03))
    told = case_of({name: one for name, one in found.items() if name != "onnxruntime"})
    assert told["noise"] is None
    assert told["vs_unformed"] == pytest.approx(1.5)
    assert "onnxruntime" not in told["peers_s"]
    assert over_all([told])["void"], "nothing tells the noise"
    assert not over_all([told, case_of(lives())])["void"]


def test_what_failed_is_left_out_of_the_summary() -> None:
    failed = {"case": {"model": "odd"}, "failed": "no such op"}
    told = over_all([case_of(lives()), failed])
    assert told["noise"] == pytest.approx(1.0)
    assert not told["void"]
    assert told["summary"]["quiet"]["vs_eager"]["minimum"] == pytest.approx(1.0)
    assert over_all([failed]) == {"noise": None, "void": True, "summary": {}}


def test_slices_keep_their_order() -> None:
    assert slices_of([answer(0.1), answer(0.2)]).calls(1) == [0.2] * 20
