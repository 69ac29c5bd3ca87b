"""How `gearshift bench split` goes about it, with regions and models that only note things."""

import os
from typing import Any

import pytest
from rich.console import Console

from gearshift.bench import split
from gearshift.bench.show import show_split
from gearshift.errors import GearshiftError

WAYS = {"none 0": 0.02, "none both": 0.012, "rows": 0.01}
PACE = split.Pace(
    only=("matmul 512, 512 rows", "attention, batch 1"), models=("a", "b"), beside_peers=("c", "d")
)


def region_cases(name: str, built: Any, choices: Any, *_: Any) -> list[dict[str, Any]]:
    if name != PACE.only[0]:
        raise GearshiftError("cannot be divided")
    homes.append(os.environ["GEARSHIFT_HOME"])
    player = {"action": "rows", "of_oracle": 1.0}
    return [
        {
            "case": {"region": name, "engines": "1:1", "unseen": True},
            "ways_s": WAYS,
            "oracle": "rows",
            "oracle_s": 0.01,
            "players_oracle_s": 0.01,
            "by_itself": {"plan": "rows", "of_oracle": 0.97},
            "players": {"dqn": player},
        }
    ]


def step_case(name: str, *_: Any) -> list[dict[str, Any]]:
    if name == "b":
        raise GearshiftError("no second size")
    homes.append(os.environ["GEARSHIFT_HOME"])
    found = {"calls_to_follow": [20, None], "stayed": [0.9, 0.0], "regret": 0.04}
    return [{"case": {"model": name, "trace": "step"}, "steps": {"by itself": found}}]


def beside_peers(name: str, *_: Any) -> list[dict[str, Any]]:
    if name == "d":
        raise GearshiftError("cannot be exported")
    ratios = dict.fromkeys(
        ("vs_eager", "vs_best_peer", "vs_best_static", "p95_vs_best_static"), 1.25
    )
    about = {"model": name, "batch": 8, "trace": "neighbour"}
    told = {"best_static": "openvino", "plan": "rows", "gearshift_s": 0.1, "peers_failed": {}}
    return [{"case": about, **told, **ratios, "noise": 1.01}]


homes: list[str] = []


@pytest.fixture
def measured(monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    homes.clear()
    monkeypatch.setattr(split, "measure_roofline", lambda: None)
    monkeypatch.setattr(split, "regions", lambda batches: dict.fromkeys(PACE.only))
    monkeypatch.setattr(split, "_region_cases", region_cases)
    monkeypatch.setattr(split, "_step_case", step_case)
    monkeypatch.setattr(split, "_beside_peers", beside_peers)
    return split.measure(seed=1, cores=(0, 1), pace=PACE, say=lambda text: None)


def test_regions_and_steps_begin_with_an_empty_home(measured: dict[str, Any]) -> None:
    assert len(homes) == 2
    assert os.environ["GEARSHIFT_HOME"] not in homes
    assert not any(map(os.path.exists, homes)), "and leave nothing"


def test_what_fails_is_told_and_the_rest_is_measured(measured: dict[str, Any]) -> None:
    kinds = ("cases", "steps", "models")
    failed = [c["failed"] for kind in kinds for c in measured[kind] if "failed" in c]
    assert failed == ["cannot be divided", "no second size", "cannot be exported"]
    assert (measured["noise"], measured["void"]) == (pytest.approx(1.01), False)
    summary = measured["summary"]
    assert summary["engines"]["1:1"]["by itself"] == pytest.approx(0.97)
    assert summary["steps"]["by itself"] == {
        "of_oracle": pytest.approx(1 / 1.04),
        "calls_to_follow_at_most": None,
        "stayed_at_least": 0.0,
        "regret_at_most": 0.04,
    }
    out = Console(record=True, width=200)
    show_split({**measured, "seed": 1}, out)
    told = out.export_text()
    assert "attention, batch 1: cannot be divided" in told
    assert "b: no second size" in told
    assert "d: cannot be exported" in told
    assert "neighbour, batch 8" in told


def test_a_choice_of_the_agent_takes_microseconds(measured: dict[str, Any]) -> None:
    assert 0 < measured["decision_s"] < 0.01


def test_the_oracle_is_chosen_among_those_that_had_more_turns() -> None:
    turns = dict.fromkeys(("a", "b", "c", "d", "e", "f", "g", split.ITSELF), 0)

    def way(name: str) -> Any:
        def call() -> None:
            turns[name] += 1

        return call

    compared = {split.ITSELF, "g"}
    slices = split._in_turns({name: way(name) for name in turns}, 2, compared)
    more = {name for name, found in slices.items() if len(found.call_s) > 2}
    assert compared <= more, "what is told as a share of the oracle has as many turns"
    assert split.FINALISTS <= len(more) <= split.FINALISTS + len(compared)
    assert all(len(slices[name].call_s) == 2 + split.MORE * 2 for name in more)
