"""A benchmark's arithmetic, on numbers one can check by hand."""

from typing import Any

import pytest

from gearshift.bench.runtime import _by_phase
from gearshift.bench.score import (
    PEERS,
    TRIAL,
    TWICE,
    Lived,
    Slices,
    Stretch,
    noise_of,
    summary_of,
)
from gearshift.bench.score import case_of as case_in_two_lives
from gearshift.bench.traces import Phase, traces
from gearshift.busy import Neighbour

QUIET = Phase(neighbours=(), seconds=10.0)
BUSY = Phase(neighbours=(Neighbour(kind="arithmetic", core=0),), seconds=10.0)


def static(**call_s: float) -> dict[str, Slices]:
    """Two slices of ten equal calls for each setting."""
    times = {name: call_s.get(name.replace(".", "_"), 0.1) for name in PEERS}
    times["openvino x1"] = call_s.get("one", 0.1)
    times[TWICE] = times["onnxruntime"]
    return {n: Slices(call_s=[[t] * 10, [t] * 10], cpu_s=20 * t) for n, t in times.items()}


Part = tuple[str, float, int]
"""A plan, seconds of a call, how many."""


def ours(*phases: list[Part]) -> Lived:
    stretches = []
    for parts in phases:
        calls = [(plan, call_s) for plan, call_s, count in parts for _ in range(count)]
        stretches.append(Stretch([call_s for _, call_s in calls], [plan for plan, _ in calls]))
    cpu_s = sum(sum(stretch.call_s) for stretch in stretches)
    return Lived(phases=stretches, cpu_s=cpu_s, max_error=1e-6, decisions=[])


def case_of(
    phases: list[Phase], lived: Lived, theirs: list[dict[str, Slices]], other: Lived | None = None
) -> dict[str, Any]:
    """The other life was the same, unless it is given."""
    return case_in_two_lives(phases, lived, theirs, elsewhere=other or lived)


def test_ratios_above_one_mean_that_we_are_better() -> None:
    theirs = [static(eager=0.04, onnxruntime=0.02), static(eager=0.16, onnxruntime=0.04, one=0.03)]
    case = case_of(
        [QUIET, BUSY], ours([("a", 0.02, 500)], [("a", 0.04, 10), ("b", 0.03, 320)]), theirs
    )
    assert case["best_peer"] == "onnxruntime"
    assert case["best_static_s"] == pytest.approx(20 / (10 / 0.02 + 10 / 0.04))
    assert case["oracle_s"] == pytest.approx(20 / (10 / 0.02 + 10 / 0.03))
    assert case["vs_eager"] > 2
    assert 1.0 < case["vs_best_static"] < 1.2
    assert case["of_oracle"] < 1.0
    assert case["phases"][1]["settled"] == {"calls": 10, "seconds": pytest.approx(0.4)}


def test_our_own_plans_are_among_the_oracles() -> None:
    case = case_of(
        [QUIET], ours([("a", 0.05, 40), (TRIAL, 0.001, 40), ("split", 0.01, 40)]), [static()]
    )
    assert case["phases"][0]["oracle"] == "gearshift's split"
    assert case["oracle_s"] == pytest.approx(0.01)


def test_the_best_is_chosen_on_one_half_and_told_on_the_other_both_ways() -> None:
    """Whoever was lucky in one half is told by the other."""
    theirs = static(eager=0.1)
    theirs["openvino"] = Slices(call_s=[[0.01] * 5, [0.2] * 5], cpu_s=1.0)
    case = case_of([QUIET], ours([("a", 0.1, 100)]), [theirs])
    assert case["best_static_s"] == pytest.approx((0.2 + 0.1) / 2)
    assert case["oracle_s"] == pytest.approx((0.2 + 0.1) / 2)


def test_settled_is_what_stays_trials_apart() -> None:
    parts = [("good", 0.02, 5), ("bad", 0.08, 5), ("good", 0.02, 10), (TRIAL, 0.05, 4)]
    case = case_of([QUIET], ours([*parts, ("good", 0.02, 30)]), [static(onnxruntime=0.02)])
    assert case["phases"][0]["settled"] == {"calls": 10, "seconds": pytest.approx(0.5)}


def test_a_trial_of_a_bad_plan_and_a_good_one_is_not_settled_yet() -> None:
    """The plan in force is the one from before, here from the phase before."""
    before = [("bad", 0.08, 40)]
    parts = [(TRIAL, 0.05, 8), ("bad", 0.08, 2), (TRIAL, 0.05, 6), ("good", 0.02, 30)]
    theirs = static(onnxruntime=0.02)
    case = case_of([QUIET, BUSY], ours(before, parts), [theirs, theirs])
    assert case["phases"][1]["settled"] == {"calls": 16, "seconds": pytest.approx(0.86)}
    summary = summary_of([{"case": {"trace": "changing", "start": "warm"}} | case])
    assert summary["changing, warm"]["changes"] == {
        "came": {"number": 1, "followed_soon": 1},
        "went": {"number": 0, "followed_soon": 0},
    }


def test_a_plan_that_served_in_the_other_life_only_is_among_the_oracles() -> None:
    lived, other = ours([("a", 0.05, 100)]), ours([("better", 0.01, 40)])
    case = case_of([QUIET], lived, [static()], other)
    assert case["phases"][0]["oracle"] == "gearshift's better"
    assert case["of_oracle"] == pytest.approx(0.2)


def test_a_plans_better_minute_in_the_other_life_does_not_make_the_oracle_worse() -> None:
    """It is never worse than the best static setting."""
    lived, other = ours([("a", 0.03, 100)]), ours([("a", 0.01, 100)])
    case = case_of([QUIET], lived, [static(openvino=0.02)], other)
    assert case["oracle_s"] == case["best_static_s"] == pytest.approx(0.02)
    assert case["phases"][0]["oracle"] == "openvino"
    assert case["phases"][0]["static_s"]["openvino"] == pytest.approx(0.02)


def test_tails_and_cpu_time_are_of_all_calls() -> None:
    theirs = static(eager=0.04, onnxruntime=0.02)
    case = case_of([QUIET], ours([("a", 0.02, 90), ("a", 0.1, 10)]), [theirs])
    assert case["p95_vs_eager"] == pytest.approx(0.4)
    assert case["p95_vs_best_static"] == pytest.approx(0.2)
    assert case["cpu_s_per_call"] == pytest.approx(0.028)
    assert case["cpu_vs_best_peer"] == pytest.approx(0.02 / 0.028)


def test_never_settled_is_said() -> None:
    case = case_of([QUIET], ours([("a", 0.2, 100)]), [static(onnxruntime=0.02)])
    assert case["phases"][0]["settled"] is None


def test_the_noise_is_the_same_contender_twice() -> None:
    settings = static(onnxruntime=0.02)
    settings[TWICE] = Slices(call_s=[[0.025] * 4])
    assert noise_of(settings) == pytest.approx(0.8)


def test_a_summary_has_mean_and_minimum_by_trace() -> None:
    case = case_of([QUIET], ours([("a", 0.02, 100)]), [static(eager=0.04, onnxruntime=0.02)])
    other = case_of([QUIET], ours([("a", 0.02, 100)]), [static(eager=0.16, onnxruntime=0.02)])
    about = {"case": {"trace": "quiet", "start": "warm"}}
    summary = summary_of([about | case, about | other])
    assert summary["quiet, warm"]["vs_eager"]["geometric_mean"] == pytest.approx(4.0)
    assert summary["quiet, warm"]["vs_eager"]["minimum"] == pytest.approx(2.0)


def test_a_seed_tells_all_that_happens() -> None:
    one, same, other = (traces(seed, [0, 1], 5.0, 5) for seed in (1, 1, 2))
    assert one == same != other
    assert [bool(phase.neighbours) for phase in one["changing"]] == [False, True] * 2 + [False]


def test_calls_are_filed_under_the_phase_they_began_in() -> None:
    answers = [
        {"at_s": [0.0, 0.9], "call_s": [0.5, 0.6], "plans": ["a", "b"]},
        {"at_s": [1.5, 9.9], "call_s": [0.5, 0.1], "plans": ["c", "d"]},
    ]
    first, second = _by_phase(answers, [1.0, 5.0])
    assert (first.call_s, first.plans) == ([0.5, 0.6], ["a", "b"])
    assert (second.call_s, second.plans) == ([0.5, 0.1], ["c", "d"])


def test_neighbours_are_put_on_the_contenders_own_cores() -> None:
    cores = {
        neighbour.core
        for seed in range(50)
        for phases in traces(seed, [5, 7], 5.0, 5).values()
        for phase in phases
        for neighbour in phase.neighbours
    }
    assert cores == {None, 5, 7}
