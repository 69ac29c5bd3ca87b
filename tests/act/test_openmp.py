"""Fewer threads for one call, and nothing else changed."""

import threading

import pytest
import torch

import gearshift
from gearshift.act.openmp import on_threads


def test_a_call_on_one_thread_leaves_the_number_as_it_was() -> None:
    before = torch.get_num_threads()
    assert on_threads(1, torch.get_num_threads)() == 1
    assert torch.get_num_threads() == before

    def fail() -> None:
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        on_threads(1, fail)()
    assert torch.get_num_threads() == before


def test_other_threads_are_not_touched() -> None:
    inside: list[int] = []

    def look() -> None:
        other = threading.Thread(target=lambda: inside.append(torch.get_num_threads()))
        other.start()
        other.join()

    before = torch.get_num_threads()
    on_threads(1, look)()
    assert inside == [before]


def test_the_model_itself_leaves_others_their_cores() -> None:
    class Counting(torch.nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            seen.append(torch.get_num_threads())
            return x + 1

    seen: list[int] = []
    all_cores, x = torch.get_num_threads(), torch.randn(3, 8)
    with gearshift.adapt(Counting().eval(), x, policy="keep") as runtime, torch.no_grad():

        def threads() -> int:
            seen.clear()
            runtime(x)
            return seen[-1]

        assert threads() == all_cores
        runtime._crowd.neighbours = 1
        assert threads() == max(1, all_cores - 1)
        runtime._crowd.neighbours = 99
        assert threads() == 1
        runtime._crowd.neighbours = 0
        begun, go_on = threading.Event(), threading.Event()
        runtime._background.submit(lambda: begun.set() or go_on.wait())
        begun.wait()
        assert threads() == max(1, all_cores - 1), "also to our own builds"
        go_on.set()
        assert runtime.settle(30)
        assert threads() == all_cores
