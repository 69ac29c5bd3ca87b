"""How `gearshift bench runtime` goes about it, with contenders that only note what they hear."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from time import perf_counter
from typing import Any

import pytest

from gearshift.bench import runtime
from gearshift.bench.arena import Setting
from gearshift.bench.score import TWICE, Slices
from gearshift.bench.traces import Phase
from gearshift.busy import Neighbour

ONE = (Neighbour(kind="arithmetic", core=0),)
TRACE = {
    "quiet": (Phase(neighbours=(), seconds=0.08),),
    "changing": (
        Phase(neighbours=(), seconds=0.04),
        Phase(neighbours=ONE, seconds=0.06),
        Phase(neighbours=(), seconds=0.04),
    ),
}
PACE = runtime.Pace(slice_s=0.001, traces=tuple(TRACE))


class Fake:
    """Notes what happened, and to whom."""

    told: list[tuple[str, str, float]]
    present: list[Neighbour]

    def __init__(self, model: str, setting: Setting, folder: Path, home: Path | None = None):
        self.kind, self.ready_s, self.batch = setting.kind, 0.1, 1

    def arrive(self) -> None: ...

    def open(self) -> None:
        self.told.append((self.kind, f"opened beside {len(self.present)}", 0.0))

    def begin(self, seconds: float) -> None:
        self.told.append((self.kind, "ran", seconds))
        self.at_s = perf_counter()

    def end(self) -> dict[str, Any]:
        calls = {"call_s": [0.01] * 4, "at_s": [self.at_s] * 4, "plans": ["a"] * 4}
        return {**calls, "cpu_s": 0.04, "max_error": 0.0, "decisions": []}

    def run(self, seconds: float) -> dict[str, Any]:
        self.begin(seconds)
        return self.end()

    def close(self) -> None: ...


@pytest.fixture
def measured(monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    Fake.told, Fake.present = [], []

    @contextmanager
    def busy(neighbours: Sequence[Neighbour]) -> Iterator[None]:
        Fake.present = list(neighbours)
        yield
        Fake.present = []

    monkeypatch.setattr(runtime, "Contender", Fake)
    monkeypatch.setattr(runtime, "busy", busy)
    monkeypatch.setattr(runtime, "traces", lambda *drawn: TRACE)
    return runtime.measure(["mine"], seed=1, cores=[0, 1], pace=PACE, say=lambda text: None)


def test_gearshift_lives_through_every_trace_twice(measured: dict[str, Any]) -> None:
    lived_s = [seconds for kind, what, seconds in Fake.told if (kind, what) == ("gearshift", "ran")]
    trace_s = sum(phase.seconds for phases in TRACE.values() for phase in phases)
    assert sum(lived_s) == pytest.approx(2 * trace_s)
    abouts = [(case["case"]["trace"], case["case"]["start"]) for case in measured["cases"]]
    assert abouts == [(t, s) for t in TRACE for s in ("cold", "warm")]


def test_every_setting_has_two_slices_or_more_in_every_phase(measured: dict[str, Any]) -> None:
    static = [kind for kind, what, _ in Fake.told if what == "ran" and kind != "gearshift"]
    stops = PACE.one_phase_stops + PACE.stops * len(TRACE["changing"])
    assert len(static) == stops * len(runtime.settings(2))
    first_of_each_stop = static[:: len(runtime.settings(2))]
    assert len(set(first_of_each_stop)) > 2, "not always the same one first"


def test_a_trace_with_a_neighbour_from_the_start_has_it_before_gearshift_opens(
    monkeypatch: pytest.MonkeyPatch, measured: dict[str, Any]
) -> None:
    Fake.told = []
    busy_from_the_start = {"neighbour": (Phase(neighbours=ONE, seconds=0.04),)}
    monkeypatch.setattr(runtime, "traces", lambda *drawn: busy_from_the_start)
    pace = runtime.Pace(slice_s=0.001, traces=("neighbour",))
    runtime.measure(["mine"], seed=1, cores=[0, 1], pace=pace, say=lambda text: None)
    opened = [what for kind, what, _ in Fake.told if kind == "gearshift" and "opened" in what]
    assert opened == ["opened beside 1"] * 2


def test_a_setting_far_behind_has_no_more_slices_once_it_had_two() -> None:
    slices = {name: Slices() for name in ("eager", "onnxruntime", "openvino", TWICE)}
    took_s = {"eager": 0.02, "onnxruntime": 0.02, "openvino": 0.01, TWICE: 0.02}
    for _ in range(2):
        assert runtime.in_the_running(slices) == list(slices), "each has as many odd as even ones"
        for name, seconds in took_s.items():
            slices[name].add({"call_s": [seconds], "cpu_s": 0.0})
    assert runtime.in_the_running(slices) == ["onnxruntime", "openvino", TWICE]
