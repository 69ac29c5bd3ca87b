"""Threads of a backend: found when they are made, and kept off the core that is left to calls."""

import os
import threading

import pytest
import torch

import gearshift
from gearshift.act.engines.pinned import machine_cores
from gearshift.act.workers import TASKS, allow, start_workers
from gearshift.plan import Rewrite
from gearshift.plan.plan import whole
from gearshift.runtime_hands import RuntimeHands

CORES = machine_cores()


class Waiting:
    """Threads on one core each, which end when told to."""

    def __init__(self, *cores: int) -> None:
        self._end = threading.Event()
        self.numbers: list[int] = []
        for core in cores:
            ready = threading.Event()
            threading.Thread(target=self._wait, args=(core, ready)).start()
            ready.wait()

    def _wait(self, core: int, ready: threading.Event) -> None:
        os.sched_setaffinity(0, {core})
        self.numbers.append(threading.get_native_id())
        ready.set()
        self._end.wait()

    def end(self) -> None:
        self._end.set()


def cores_of(thread: int) -> set[int]:
    return os.sched_getaffinity(thread)


def test_threads_are_found_and_free_to_run_anywhere() -> None:
    found = start_workers(lambda: Waiting(CORES[0]), count=1, core=CORES[0], cores=CORES)
    assert found is not None
    made, numbers = found
    assert list(numbers) == made.numbers
    assert cores_of(numbers[0]) == set(CORES)
    made.end()


def test_others_that_start_meanwhile_are_not_taken_for_them() -> None:
    made = []

    def two() -> None:
        made.append(Waiting(CORES[0], CORES[0]))

    assert start_workers(two, count=1, core=CORES[0], cores=CORES) is None
    assert all(cores_of(number) == {CORES[0]} for number in made[0].numbers)
    made[0].end()


def test_a_thread_that_has_ended_is_left_alone() -> None:
    allow([max(int(folder.name) for folder in TASKS.iterdir()) + 100_000], CORES)


def adapted() -> tuple[gearshift.Runtime, torch.nn.Module, torch.Tensor]:
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(64, 64), torch.nn.GELU()).eval()
    x = torch.ones(4, 64)
    return gearshift.adapt(model, x, policy="keep"), model, x


def threads_of(runtime: gearshift.Runtime) -> list[int]:
    return [number for built in runtime._room.executables for number in built.threads]


@pytest.mark.parametrize("spin", [False, True])
def test_workers_of_onnx_runtime_leave_the_spare_core_to_the_caller(spin: bool) -> None:
    before = os.sched_getaffinity(0)
    runtime, model, x = adapted()
    with runtime, torch.no_grad():
        rewrite = Rewrite(backend="onnxruntime", threads=len(CORES), spin=spin)
        runtime.swap(whole(runtime.program.graph, rewrite=rewrite))
        hands = RuntimeHands(runtime, runtime.space, runtime._changes, runtime._background)
        threads = threads_of(runtime)
        assert len(threads) == (0 if spin else len(CORES) - 1)
        for spare in (CORES[0], CORES[-1], None):
            hands.note_neighbours(1, spare)
            assert all(cores_of(n) == set(CORES) - {spare} for n in threads)
            assert torch.allclose(runtime(x), model(x), atol=1e-5)
    assert os.sched_getaffinity(0) == before


def test_workers_that_cannot_be_told_from_others_are_not_left_on_one_core(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Two builds at once: then the session is made again, and nobody holds its threads."""
    monkeypatch.setattr("gearshift.act.workers._cores_of", lambda thread: set())
    runtime, model, x = adapted()
    with runtime, torch.no_grad():
        before = {int(folder.name) for folder in TASKS.iterdir()}
        rewrite = Rewrite(backend="onnxruntime", threads=len(CORES))
        runtime.swap(whole(runtime.program.graph, rewrite=rewrite))
        new = {int(folder.name) for folder in TASKS.iterdir()} - before
        assert threads_of(runtime) == []
        assert all(cores_of(number) == set(CORES) for number in new)
        assert torch.allclose(runtime(x), model(x), atol=1e-5)
