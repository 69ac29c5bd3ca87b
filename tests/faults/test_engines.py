"""Rows A1, A5, A6: engines that raise, plans that cannot be built, nothing left to run on.

Processes and hangs (A2, A3, A7, A8) come with process engines.
"""

import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from time import monotonic
from typing import Any

import pytest
import torch
from torch import Tensor

from faults.models import (
    ORT,
    VOCABULARY,
    agree,
    by_module,
    captured,
    encoder,
    mlp,
    one_region,
)
from faults.survival import Counted, replaced, survives
from gearshift import GearshiftError, Rewrite, Runtime
from gearshift.act.backends import Backend
from gearshift.act.backends.eager import EagerBackend
from gearshift.act.backends.protocol import Executable, Order
from gearshift.act.engines import NullEngine, PinnedEngine
from gearshift.act.engines.pinned import PinnedJob, machine_cores
from gearshift.ir.topology import EngineSpec

FAIL_AT = 10
"""Counted from the swap on, so that it is a live call that fails."""
SOON_S = 5.0
CORE = machine_cores()[0]
PINNED = EngineSpec(name=f"cpu:{CORE}", kind="cpu", cores=(CORE,))


class Faulty(PinnedEngine):
    """A real thread that counts, and goes wrong as the null engine does."""

    def __init__(self, spec: EngineSpec, *, fail_at: int | None) -> None:
        self.started, self.fail_at = 0, fail_at
        super().__init__(spec)

    def start(self, work: Callable[..., Any], inputs: Sequence[Any]) -> PinnedJob:
        self.started += 1
        if self.fail_at is not None and self.started >= self.fail_at:
            return self.fail(work, inputs)
        return super().start(work, inputs)

    def fail(self, work: Callable[..., Any], inputs: Sequence[Any]) -> PinnedJob:
        raise NotImplementedError


class RefusesWork(Faulty):
    def fail(self, work: Callable[..., Any], inputs: Sequence[Any]) -> PinnedJob:
        raise OSError("no more work here")


class FailsAtWork(Faulty):
    def fail(self, work: Callable[..., Any], inputs: Sequence[Any]) -> PinnedJob:
        return PinnedEngine.start(self, _broken, inputs)


class Dies(PinnedEngine):
    """A thread that ends, without a word, when it is told to and work comes."""

    doomed = False

    def _serve(self) -> None:
        while (job := self._queue.get()) is not None and not self.doomed:
            job.run()


def _broken(*inputs: Any) -> Any:
    raise RuntimeError("the engine broke")


def null_engine(name: str = "null:0", fail_at: int | None = FAIL_AT) -> NullEngine:
    return NullEngine(EngineSpec(name=name, kind="null"), fail_at=fail_at)


@contextmanager
def within(seconds: float) -> Iterator[Callable[[Callable[[], Any]], Any]]:
    """Runs things beside this thread, so that a hang is a failure and not the end of the tests."""

    def run(work: Callable[[], Any]) -> Any:
        results: list[Any] = []
        errors: list[BaseException] = []

        def target() -> None:
            try:
                results.append(work())
            except BaseException as error:
                errors.append(error)

        thread = threading.Thread(target=target, daemon=True)
        thread.start()
        thread.join(seconds)
        assert not thread.is_alive(), f"still hanging after {seconds} s"
        if errors:
            raise errors[0]
        return results[0]

    yield run


ENGINES: dict[str, Callable[..., Any]] = {
    "null": lambda fail_at: null_engine(fail_at=fail_at),
    "refuses work": lambda fail_at: RefusesWork(PINNED, fail_at=fail_at),
    "fails at work": lambda fail_at: FailsAtWork(PINNED, fail_at=fail_at),
}


@pytest.mark.parametrize("make", ENGINES.values(), ids=ENGINES)
def test_A1_a_call_whose_engine_raises_is_run_elsewhere(
    make: Callable[..., Any], counted: Counted
) -> None:
    program, model, x = captured(mlp)
    engine = make(fail_at=None)
    name = engine.spec.name
    with survives(program, x, engines=["caller", engine]) as runtime, torch.no_grad():
        plan = one_region(runtime, Rewrite(backend=counted.name), name)
        runtime.swap(plan)
        assert runtime.plan == plan
        engine.fail_at = engine.started + FAIL_AT
        while not runtime.faults:
            assert engine.started < engine.fail_at
            agree(runtime(x), model(x))
        assert engine.started == engine.fail_at
        assert runtime.faults == {name: 1}
        assert name not in runtime.space.engines
        assert f"quarantined: {name}" in runtime.explain()
        assert runtime.settle(SOON_S)
        assert runtime.plan == one_region(runtime, Rewrite(backend=counted.name))
        runs = counted.runs
        agree(runtime(x), model(x))
        assert counted.runs == runs + 1, "the same plan serves on, off the engine that failed"
        with pytest.raises(GearshiftError, match=name):
            runtime.swap(plan)


def test_A1_the_loop_goes_on_without_the_engine_that_failed() -> None:
    program, model, x = captured(mlp)
    engine = null_engine(fail_at=None)
    engines = ["caller", engine]
    with survives(program, x, engines=engines, policy="bandit") as runtime, torch.no_grad():
        runtime.swap(one_region(runtime, ORT, engine.spec.name))
        engine.fail_at = engine.started + FAIL_AT
        while not runtime.faults:
            agree(runtime(x), model(x))
        runtime.release()
        end_s = monotonic() + 3
        while monotonic() < end_s:
            agree(runtime(x), model(x))
            assert runtime.faults == {engine.spec.name: 1}
        assert all(region.engine == "caller" for region in runtime.plan.regions)
        assert runtime._loop.seen.at_s > monotonic() - 2, "it still looks"  # type: ignore[union-attr]


@pytest.mark.parametrize("make", ENGINES.values(), ids=ENGINES)
def test_A1_no_call_is_lost_when_the_engine_fails_under_eight_threads(
    make: Callable[..., Any],
) -> None:
    program, model, x = captured(mlp)
    engine = make(fail_at=None)
    with survives(program, x, engines=["caller", engine]) as runtime:
        runtime.swap(by_module(runtime, ORT, engine.spec.name))
        engine.fail_at = engine.started + FAIL_AT
        inputs = [torch.randn(4, 16) for _ in range(64)]
        with torch.no_grad():
            expected = [model(given) for given in inputs]
        with ThreadPoolExecutor(8) as pool:
            answers = list(pool.map(runtime, inputs))
        agree(answers, expected)
        assert runtime.faults[engine.spec.name] >= 1
        assert runtime.settle(SOON_S)
        assert {region.engine for region in runtime.plan.regions} == {"caller"}
        assert {region.rewrite for region in runtime.plan.regions} == {ORT}


def test_A1_a_call_the_model_itself_refuses_is_not_the_engines_fault() -> None:
    program, model, ids = captured(encoder)
    engine = null_engine(fail_at=None)
    poison = ids.clone()
    poison[0, 0] = VOCABULARY
    with survives(program, ids, engines=["caller", engine]) as runtime:
        plan = one_region(runtime, ORT, "null:0")
        runtime.swap(plan)
        for _ in range(3):
            with pytest.raises(IndexError):
                runtime(poison)
            agree(runtime(ids), model(ids))
        assert runtime.settle(SOON_S)
        assert runtime.plan == plan
        assert not runtime.faults
        assert "null:0" in runtime.space.engines


class FailsToBuild(EagerBackend):
    name = "fails to build"

    def build(self, order: Order) -> Executable:
        raise RuntimeError("no such kernel")


class FailsToWarmUp(EagerBackend):
    name = "fails to warm up"

    def build(self, order: Order) -> Executable:
        return replaced(super().build(order), _broken)


class OutOfMemory(EagerBackend):
    name = "out of memory"

    def build(self, order: Order) -> Executable:
        raise MemoryError


class FailsAtOtherSizes(EagerBackend):
    """Builds for the example, but not for sizes in general."""

    name = "fails at other sizes"

    def build(self, order: Order) -> Executable:
        if order.shapes is None:
            raise RuntimeError("sizes must be known")
        return super().build(order)


@pytest.mark.parametrize(
    "backend", [FailsToBuild(), FailsToWarmUp(), OutOfMemory()], ids=lambda b: b.name
)
@pytest.mark.parametrize("cut", [one_region, by_module], ids=["one region", "by module"])
def test_A5_the_old_plan_serves_on_when_a_new_one_fails(
    backend: Backend,
    cut: Callable[..., Any],
    registered: Callable[[Backend], Backend],
    counted: Counted,
) -> None:
    registered(backend)
    program, model, x = captured(mlp)
    with survives(program, x) as runtime, calling(runtime, x, model(x)):
        plan = one_region(runtime, Rewrite(backend=counted.name))
        runtime.swap(plan)
        with pytest.raises(GearshiftError) as caught:
            runtime.swap(cut(runtime, Rewrite(backend=backend.name)))
        assert str(caught.value)
        assert runtime.plan == plan
        assert "refused" in runtime.decisions[-1].outcome
        runs = counted.runs
        runtime(x)
        assert counted.runs > runs
        assert not runtime.faults


def test_A5_an_engine_that_fails_while_it_builds_changes_nothing() -> None:
    class FailsToCall(NullEngine):
        def call(self, work: Callable[[], Any]) -> Any:
            raise OSError("the engine is gone")

    program, _, x = captured(mlp)
    engine = FailsToCall(EngineSpec(name="null:0", kind="null"))
    with survives(program, x, engines=["caller", engine]) as runtime:
        plan = one_region(runtime, ORT)
        runtime.swap(plan)
        with pytest.raises(GearshiftError, match="the engine is gone"):
            runtime.swap(one_region(runtime, ORT, "null:0"))
        assert runtime.plan == plan


def test_A5_a_build_that_fails_in_the_background_is_noticed_by_no_call(
    registered: Callable[[Backend], Backend],
) -> None:
    backend = registered(FailsAtOtherSizes())
    program, model, x = captured(mlp)
    with survives(program, x) as runtime, torch.no_grad():
        plan = one_region(runtime, Rewrite(backend=backend.name))
        runtime.swap(plan)
        for batch in (1, 3, 3, 3, 3, 5, 7, 1, 1, 1):
            given = torch.randn(batch, 16)
            agree(runtime(given), model(given))
            assert runtime.settle(SOON_S)
        assert runtime.plan == plan


class FailsLater(EagerBackend):
    """Serves well until told to fail."""

    name = "fails later"
    broken = False

    def build(self, order: Order) -> Executable:
        built = super().build(order)

        def run(*inputs: Any) -> Sequence[Tensor]:
            return _broken() if self.broken else built.run(*inputs)

        return replaced(built, run)


@pytest.mark.timeout(60)
def test_A6_with_every_engine_dead_the_model_answers_by_itself(
    registered: Callable[[Backend], Backend],
) -> None:
    backend = FailsLater()
    registered(backend)
    program, model, x = captured(mlp)
    engines = [null_engine("null:0"), null_engine("null:1")]
    with survives(program, x, engines=["caller", *engines]) as runtime, torch.no_grad():
        both = by_module(runtime, Rewrite(backend=backend.name), "null:0")
        first, *rest = both.regions
        moved = one_region(runtime, Rewrite(backend=backend.name), "null:1")
        assert rest
        assert first.engine == "null:0"
        for plan in (both, moved):
            for engine in engines:
                engine.started, engine.fail_at = 0, None
            runtime.swap(plan)
            assert runtime.plan == plan
            for engine in engines:
                engine.fail_at = engine.started + 1
            agree(runtime(x), model(x))
            assert runtime.settle(SOON_S)
            agree(runtime(x), model(x))
        backend.broken = True
        for _ in range(20):
            agree(runtime(x), model(x))
        assert runtime.settle(SOON_S)
        assert runtime.space.engines == ("caller",)
        assert runtime.faults == {"null:0": 1, "null:1": 1, "caller": 1}
        assert runtime.plan.regions[0].rewrite.backend == "eager"


@pytest.mark.timeout(60)
def test_A6_an_engine_closed_beneath_its_plan_costs_no_call() -> None:
    program, model, x = captured(mlp)
    engine = PinnedEngine(PINNED)
    with survives(program, x, engines=["caller", engine]) as runtime, torch.no_grad():
        runtime.swap(one_region(runtime, ORT, PINNED.name))
        agree(runtime(x), model(x))
        engine.close()
        with within(SOON_S) as run:
            agree(run(lambda: runtime(x)), model(x))
        assert runtime.faults == {PINNED.name: 1}


@pytest.mark.timeout(60)
def test_A6_a_dead_thread_is_no_hang() -> None:
    program, model, x = captured(mlp)
    engine = Dies(PINNED)
    with survives(program, x, engines=["caller", engine]) as runtime, torch.no_grad():
        runtime.swap(one_region(runtime, ORT, PINNED.name))
        agree(runtime(x), model(x))
        engine.doomed = True
        for _ in range(3):
            with within(SOON_S) as run:
                agree(run(lambda: runtime(x)), model(x))
        assert runtime.faults[PINNED.name] >= 1


@pytest.mark.timeout(60)
@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
def test_A6_an_engine_that_cannot_start_is_an_error_in_time() -> None:
    program, _, x = captured(mlp)
    nowhere = EngineSpec(name="cpu:900", kind="cpu", cores=(900,))
    with pytest.raises(GearshiftError), within(SOON_S) as run:
        run(lambda: _swap_to_new_engine(program, x, nowhere))


def _swap_to_new_engine(program: Any, x: Tensor, spec: EngineSpec) -> None:
    """A core may go away between the look at the machine and the engine's start."""
    with survives(program, x, engines=["caller", PinnedEngine(spec)]) as runtime:
        runtime.swap(one_region(runtime, ORT, spec.name))


@contextmanager
def calling(runtime: Runtime, x: Tensor, expected: Tensor) -> Iterator[None]:
    """A thread that calls all the while; whatever it meets is raised at the end."""
    stop = threading.Event()

    def call() -> int:
        calls = 0
        while not stop.is_set():
            agree(runtime(x), expected)
            calls += 1
            time.sleep(0)
        return calls

    with ThreadPoolExecutor(1) as pool:
        future = pool.submit(call)
        try:
            yield
        finally:
            stop.set()
        assert future.result(30) > 0
