"""How `gearshift bench regions` goes about it: with contenders that only note what they hear, and
for real.
"""

from io import StringIO
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from gearshift.bench import regions, stage
from gearshift.bench.arena import Setting
from gearshift.bench.regions import OURS, STATIC, UNFORMED, Pace, measure
from gearshift.bench.show import show_regions
from gearshift.bench.stage import LifePace, Turns
from gearshift.errors import GearshiftError

PACE = Pace(
    life=LifePace(seconds=7.0),
    unformed_s=3.0,
    turns=Turns(slice_s=0.5, min_calls=8),
    models=("broken", "mine"),
    shapes=("mine",),
    building=(),
)
TOY = """
import torch
def make():
    torch.manual_seed(0)
    layers = [(torch.nn.Linear(256, 256), torch.nn.GELU()) for _ in range(3)]
    return torch.nn.Sequential(*sum(layers, ())).eval(), torch.randn(16, 256)
"""


class Fake:
    """Notes what happened, and to whom."""

    told: list[tuple[str, str, str, float]]
    settings: list[Setting]

    def __init__(self, model: str, setting: Setting, folder: Path, home: Path | None = None):
        self.model, self.kind, self.ready_s, self.batch = model, setting.kind, 0.1, 1
        self.settings.append(setting)

    def note(self, what: str, seconds: float = 0.0) -> None:
        self.told.append((self.model, self.kind, what, seconds))

    def arrive(self) -> None: ...

    def open(self) -> None:
        if (self.model, self.kind) in (("broken", "eager"), ("mine", "openvino")):
            raise GearshiftError(f"{self.kind} ended: no such op")

    def become(self, word: str) -> None:
        self.note(word)

    def run(self, seconds: float) -> dict[str, Any]:
        self.note("ran", seconds)
        under_way = seconds == PACE.life.seconds
        calls = {"call_s": [0.01] * 2, "plans": ["a"] * 2, "cpu_s": 0.02, "max_error": 0.0}
        told = ["divided: serves"] if self.kind == OURS else []
        return {**calls, "decisions": told, "formed": told, "under_way": under_way}

    def close(self) -> None:
        self.note("closed")


@pytest.fixture
def measured(monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    Fake.told, Fake.settings = [], []
    monkeypatch.setattr(stage, "Contender", Fake)
    return measure(None, pace=PACE, say=lambda text: None)


def test_one_that_fails_says_why_and_leaves_the_others_their_time(measured: dict[str, Any]) -> None:
    broken, mine = measured["cases"]
    assert "no such op" in broken["failed"]
    assert mine["formed"] == ["divided: serves"]
    assert "failed" not in mine
    told = StringIO()
    show_regions(measured, Console(file=told, width=200))
    assert "no such op" in told.getvalue()
    assert "divided: serves" in told.getvalue()
    assert "mine: without openvino: openvino ended: no such op" in told.getvalue()
    assert "1.00 times as fast as without regions formed anew" in told.getvalue()


def test_gearshift_that_forms_nothing_is_there_where_something_was_formed(
    measured: dict[str, Any],
) -> None:
    mine = measured["cases"][1]
    assert mine["vs_unformed"] == 1.0
    ran = [what for model, kind, what, _ in Fake.told if (model, kind) == ("mine", UNFORMED)]
    assert ran.count("ran") > PACE.turns.rounds


def test_gearshift_lives_until_nothing_is_under_way(measured: dict[str, Any]) -> None:
    ours = ("mine", OURS, "ran")
    lived_s = [seconds for *about, seconds in Fake.told if tuple(about) == ours]
    assert lived_s[:2] == [PACE.life.seconds, PACE.life.longer_s]
    assert set(lived_s[2:]) == {PACE.turns.slice_s, PACE.before_s}


def test_all_take_turns_in_slices_of_one_length_and_rotating_order(
    measured: dict[str, Any],
) -> None:
    ran = [(kind, s) for model, kind, what, s in Fake.told if model == "mine" and what == "ran"]
    start = ran.index((UNFORMED, PACE.unformed_s)) + 1
    size = len(STATIC) + 1  # one failed, and one came later
    rounds = [
        ran[start + turn * size : start + (turn + 1) * size] for turn in range(PACE.turns.rounds)
    ]
    assert all(seconds == PACE.turns.slice_s for one in rounds for _, seconds in one)
    assert all(sorted(one) == sorted(rounds[0]) for one in rounds)
    assert len({one[0][0] for one in rounds}) > 3
    assert measured["cases"][1]["calls"][OURS] >= PACE.turns.min_calls


def test_nobody_is_warmed_up_and_the_export_does_not_stay(measured: dict[str, Any]) -> None:
    cold = [s for s in Fake.settings if s.sizes is None and s.kind != "export"]
    assert cold
    assert all(s.cold and s.warm_up == 0 for s in cold)
    mine = [(kind, what) for model, kind, what, _ in Fake.told if model == "mine"]
    assert mine[0] == ("export", "closed")


def test_at_another_size_peers_are_made_for_it(measured: dict[str, Any]) -> None:
    (shapes,) = measured["shapes"]
    assert shapes["calls_until_near"] == 0
    sizes = {s.kind: s.sizes for s in Fake.settings if s.sizes is not None}
    assert sizes == {"export": 1, OURS: 0, **dict.fromkeys(regions.PEERS, 1)}
    assert ("mine", OURS, "other sizes", 0.0) in Fake.told


def test_models_that_were_asked_for_bring_only_what_concerns_them(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    Fake.told, Fake.settings = [], []
    monkeypatch.setattr(stage, "Contender", Fake)
    found = measure(["other"], pace=PACE, say=lambda text: None)
    assert [case["case"]["model"] for case in found["cases"]] == ["other"]
    assert found["shapes"] == found["builds"] == []


@pytest.mark.soak
def test_it_measures_a_toy_model_for_real(tmp_path: Path) -> None:
    (tmp_path / "toy.py").write_text(TOY)
    model = f"{tmp_path / 'toy.py'}:make"
    pace = Pace(
        life=LifePace(seconds=2.0, longer=0),
        turns=Turns(slice_s=0.2, rounds=2, min_calls=4),
        least_call_s=0.0,
        models=(model,),
        shapes=(),
        building=(model,),
        build_s=1.0,
    )
    found = measure(None, pace=pace, say=lambda text: None)
    (case,), (builds,) = found["cases"], found["builds"]
    assert "failed" not in case, case
    assert "failed" not in builds, builds
    assert case["first_call_s"]["torch.compile"] > 10 * case["peers_s"]["torch.compile"]
    assert case["max_error"] < 1e-4
    assert case["vs_best_peer"] > 0
    assert builds["builds"] > 0
