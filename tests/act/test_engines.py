"""Engines: the checker, the pinning, the finding, and that the caller is left as it was."""

import os
import threading
import time

import pytest
import torch
from torch import nn

import gearshift
from gearshift.act.engines import NullEngine, check_engine, discover, open_engine, parse_engine
from gearshift.errors import UsageError
from gearshift.ir.topology import EngineSpec
from gearshift.plan import Rewrite
from gearshift.plan.plan import whole

FIRST = discover().names[1]


@pytest.mark.parametrize("name", ["caller", FIRST, "null:0"])
def test_engine_does_its_duty(name: str) -> None:
    check_engine(open_engine(parse_engine(name)))


def test_the_checker_catches_an_engine_that_swallows_errors() -> None:
    class Swallowing(NullEngine):
        def start(self, work, inputs):  # type: ignore[no-untyped-def]
            job = super().start(work, inputs)
            job._error = None  # type: ignore[attr-defined]
            return job

    with pytest.raises(AssertionError, match="raises what the work raised"):
        check_engine(Swallowing(EngineSpec(name="bad", kind="null")))


def test_a_pinned_engine_runs_on_its_core_with_one_thread() -> None:
    engine = open_engine(parse_engine(FIRST))
    core = int(FIRST.removeprefix("cpu:"))
    try:
        assert engine.call(lambda: os.sched_getaffinity(0)) == {core}
        assert engine.call(torch.get_num_threads) == 1
        assert engine.call(lambda: threading.current_thread().name) == f"gearshift {FIRST}"
    finally:
        engine.close()
    assert f"gearshift {FIRST}" not in [thread.name for thread in threading.enumerate()]


def test_calls_do_not_wait_for_what_is_being_built_for_their_engine() -> None:
    engine, called = open_engine(parse_engine(FIRST)), threading.Event()
    building = threading.Thread(target=lambda: engine.call(called.wait))
    building.start()
    try:
        assert engine.start(lambda: 7, ()).result() == 7, "while it is built"
        assert building.is_alive()
    finally:
        called.set()
        building.join()
        engine.close()


def test_threads_that_start_later_keep_torchs_number() -> None:
    before = torch.get_num_threads()
    engine = open_engine(parse_engine(FIRST))
    engine.call(lambda: torch.randn(64, 64) @ torch.randn(64, 64))
    found: list[int] = []
    thread = threading.Thread(target=lambda: found.append(torch.get_num_threads()))
    thread.start()
    thread.join()
    engine.close()
    assert found == [before]
    assert torch.get_num_threads() == before


@pytest.mark.parametrize("name", ["cpu:", "cpu:x", "cpu:0-", "gpu:0", "cpu:4096", "cuda:99", ""])
def test_a_wrong_name_is_refused_with_what_is_expected(name: str) -> None:
    with pytest.raises(UsageError, match="engine"):
        parse_engine(name)


def test_independent_regions_overlap_on_two_engines() -> None:
    """Two branches that each sleep: together they take about as long as one."""
    engines = [Sleepy(EngineSpec(name=f"sleepy:{i}", kind="null")) for i in range(2)]

    class Branches(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.left, self.right = nn.Linear(4, 4), nn.Linear(4, 4)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.left(x) + self.right(x)

    model, x = Branches().eval(), torch.randn(2, 4)
    with gearshift.adapt(model, x, engines=["caller", *engines]) as runtime:
        left, right, add = (op.name for op in runtime.program.graph.ops)
        plan = gearshift.Plan(
            regions=(
                gearshift.Region(ops=(left,), engine="sleepy:0"),
                gearshift.Region(ops=(right,), engine="sleepy:1"),
                gearshift.Region(ops=(add,)),
            )
        )
        runtime.swap(plan)
        runtime.watch_live(False)
        for engine in engines:
            engine.spans.clear()
        torch.testing.assert_close(runtime(x), model(x).detach())
        (first,), (second,) = engines[0].spans, engines[1].spans
        assert max(first[0], second[0]) < min(first[1], second[1]), "busy at the same time"


class Sleepy(NullEngine):
    """Takes 50 ms for each piece of work, on a thread of its own, and notes when."""

    def __init__(self, spec: EngineSpec) -> None:
        super().__init__(spec)
        self.spans: list[tuple[float, float]] = []

    def start(self, work, inputs):  # type: ignore[no-untyped-def]
        from gearshift.act.engines.pinned import PinnedJob

        def slow(*given: object) -> object:
            start_s = time.perf_counter()
            time.sleep(0.05)
            result = work(*given)
            self.spans.append((start_s, time.perf_counter()))
            return result

        thread = threading.Thread(target=lambda: job.run())
        job = PinnedJob(slow, inputs, thread, self.spec.name)
        thread.start()
        return job


def test_an_engine_on_two_cores_serves_a_plan() -> None:
    model, x = nn.Linear(16, 16).eval(), torch.randn(4, 16)
    names = discover().names
    with gearshift.adapt(model, x) as runtime:
        rewrite = Rewrite(backend="onnxruntime")
        runtime.swap(whole(runtime.program.graph, engine=names[-1], rewrite=rewrite))
        torch.testing.assert_close(runtime(x), model(x).detach())
