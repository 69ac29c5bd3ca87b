"""A run by the command line: both in turns, a neighbour that comes and goes, an end by Ctrl-C."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from itertools import pairwise

import psutil
import pytest
import torch
from torch import nn

import gearshift
from gearshift import Tolerance
from gearshift.busy import Neighbour, busy
from gearshift.live import Called, Run, Series, run_live


def run(seconds: float, seen: object, *, neighbour: bool = False) -> Run:
    model, x = nn.Linear(8, 8).eval(), torch.randn(2, 8)
    with gearshift.adapt(model, x, policy="keep") as runtime:
        return run_live(runtime, (x,), {}, seconds=seconds, seen=seen, neighbour=neighbour)  # type: ignore[arg-type]


def test_a_neighbour_comes_and_goes_once(monkeypatch: pytest.MonkeyPatch) -> None:
    shares: list[float] = []
    pids: list[int] = []

    @contextmanager
    def remembered(neighbours: Sequence[Neighbour]) -> Iterator[list[int]]:
        with busy(neighbours) as started:
            pids.extend(started)
            yield started

    def seen(_: Run, over: float) -> None:
        shares.append(over)
        if pids and over < 0.7:
            worked_s.append(sum(psutil.Process(pids[0]).cpu_times()[:2]))

    worked_s: list[float] = []
    monkeypatch.setattr("gearshift.live.busy", remembered)
    found = run(4.0, seen, neighbour=True)
    came_s, went_s = found.stay_s
    assert 0.5 < went_s - came_s < 3.0
    assert worked_s[-1] > 0.1, "it is busy"
    assert not psutil.pid_exists(pids[0]) or psutil.Process(pids[0]).status() == "zombie"
    assert shares[-1] == 1.0
    assert found.max_error == 0.0
    assert not found.wrong


def test_an_interrupt_leaves_what_was_measured() -> None:
    def seen(run: Run, over: float) -> None:
        raise KeyboardInterrupt

    found = run(60.0, seen)
    assert found.interrupted
    assert found.ours.calls
    assert found.vs_eager > 0


def test_the_end_is_the_last_third_of_the_time() -> None:
    calls = [Called(at_s, 0.001, "p") for at_s in (0.0, 0.1, 0.2, 0.3, 2.9, 3.0)]
    assert [call.at_s for call in Series(calls).end().calls] == [2.9, 3.0]
    assert not Series().end().calls


def test_a_long_run_keeps_every_second_call_then_every_fourth(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("gearshift.live.MAX_CALLS", 100)
    series = Series()
    for number in range(1000):
        series.add(Called(float(number), 0.001, "p"))
    assert len(series.calls) < 100
    assert abs(series.num_calls - 1000) <= series.every
    gaps = {b.at_s - a.at_s for a, b in pairwise(series.calls)}
    assert gaps == {float(series.every)}


def test_a_difference_beyond_what_is_allowed_is_told() -> None:
    found = Run()
    found.compare(torch.ones(3), torch.ones(3), Tolerance())
    assert not found.wrong
    found.compare(torch.ones(3), torch.zeros(3), Tolerance())
    assert "differs" in found.wrong
