"""A run by the command line: both in turns, a neighbour that comes and goes, an end by Ctrl-C."""

import torch
from torch import nn

import gearshift
from gearshift.live import Run, run_live


def run(seconds: float, seen: object, *, neighbour: bool = False) -> Run:
    model, x = nn.Linear(8, 8).eval(), torch.randn(2, 8)
    with gearshift.adapt(model, x, policy="keep") as runtime:
        return run_live(runtime, (x,), {}, seconds=seconds, seen=seen, neighbour=neighbour)  # type: ignore[arg-type]


def test_a_neighbour_comes_and_goes_once() -> None:
    shares: list[float] = []
    found = run(4.0, lambda _, over: shares.append(over), neighbour=True)
    came_s, went_s = found.stay_s
    assert 0.5 < went_s - came_s < 3.0
    assert shares[-1] == 1.0
    assert found.max_error == 0.0


def test_an_interrupt_leaves_what_was_measured() -> None:
    def seen(run: Run, over: float) -> None:
        raise KeyboardInterrupt

    found = run(60.0, seen)
    assert found.interrupted
    assert found.ours.calls
    assert found.vs_eager > 0


def test_the_end_is_the_last_third() -> None:
    found = run(0.1, lambda run, over: None)
    assert len(found.ours.end().calls) == len(found.ours.calls) - int(len(found.ours.calls) * 2 / 3)
