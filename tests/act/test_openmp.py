"""Fewer threads for one call, and nothing else changed."""

import threading

import pytest
import torch

import gearshift
from gearshift.act.openmp import on_threads
from gearshift.plan import Rewrite
from gearshift.plan.plan import whole

LEAN = Rewrite(backend="eager", threads=1)


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


def test_the_model_itself_on_one_thread_needs_no_build() -> None:
    torch.manual_seed(0)
    model, x = torch.nn.Linear(8, 4), torch.randn(3, 8)
    with gearshift.adapt(model.eval(), x, policy="keep") as runtime, torch.no_grad():
        plan = whole(runtime.program.graph, rewrite=LEAN)
        assert plan in runtime._changes.ready(), "it stands by from the start"
        runtime.swap(plan)
        assert runtime.plan == plan
        assert torch.equal(runtime(x), model(x))
        assert runtime.memory.region_bytes == 0
        model.weight.data.mul_(2)
        assert torch.equal(runtime(x), model(x)), "whatever happens to its weights"
