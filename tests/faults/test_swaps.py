"""Rows F1 to F4: plans change while calls flow; a wrong plan never stays; nothing piles up."""

import ctypes
import gc
import itertools
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from typing import Any

import psutil
import pytest
import torch
from torch import Tensor, nn

from faults.models import (
    OPENVINO,
    ORT,
    VOCABULARY,
    agree,
    agrees,
    branching,
    by_module,
    captured,
    convnet,
    eager_plan,
    encoder,
    mlp,
    one_region,
    token_ids,
)
from faults.survival import (
    Counted,
    CountedOpenVino,
    Notes,
    Witness,
    nothing_left,
    replaced,
    survives,
)
from gearshift import GearshiftError, Plan, Region, Rewrite, Runtime
from gearshift.act.backends import Backend
from gearshift.act.backends.eager import EagerBackend
from gearshift.act.backends.protocol import Executable, Order
from gearshift.act.engines.pinned import machine_cores
from gearshift.errors import VerifyError
from gearshift.ir.topology import team
from gearshift.plan import Split, legal_moves
from gearshift.plan.plan import ordered, whole

NUM_THREADS = 8
SOON_S = 10.0
MB = 1 << 20
Add = Callable[[Backend], Backend]


@dataclass
class Traffic:
    """Threads that call and check, until told to stop."""

    runtime: Runtime
    inputs: Sequence[Tensor]
    expected: Sequence[Tensor]
    notes: Notes
    calls: int = 0
    seen: set[tuple[tuple[str, str], ...]] = field(default_factory=set)
    """For each call that witnesses served, the regions that ran, in order."""
    wrong: list[str] = field(default_factory=list)
    stop: threading.Event = field(default_factory=threading.Event)

    def call_until_stopped(self, first: int) -> None:
        turns = itertools.cycle(range(len(self.inputs)))
        for turn in itertools.islice(turns, first, None):
            if self.stop.is_set():
                return
            mine = self.notes.mine()
            mine.clear()
            try:
                answer = self.runtime(self.inputs[turn])
            except Exception as error:
                self.wrong.append(repr(error))
                continue
            self.seen.add(tuple(mine))
            self.calls += 1
            if not agrees(answer, self.expected[turn]):
                self.wrong.append(f"answer {turn} differs")


@contextmanager
def traffic(runtime: Runtime, model: Any, inputs: Sequence[Tensor], notes: Notes) -> Iterator[Any]:
    with torch.no_grad():
        expected = [model(given) for given in inputs]
    flow = Traffic(runtime, inputs, expected, notes)
    with ThreadPoolExecutor(NUM_THREADS) as pool:
        futures = [pool.submit(flow.call_until_stopped, first) for first in range(NUM_THREADS)]
        try:
            yield flow
        finally:
            flow.stop.set()
        for future in futures:
            future.result(60)


def swap_under_load(num_swaps: int, registered: Add) -> None:
    """Backends, cuts, splits and engines differ; two witnesses show which regions a call ran
    through."""
    notes = Notes()
    one, two = Rewrite(backend="witness one"), Rewrite(backend="witness two")
    registered(Witness(one.backend, notes))
    registered(Witness(two.backend, notes))
    program, model, x = captured(mlp)
    inputs = [torch.randn(batch, 16) for batch in (4, 4, 2, 4, 1, 4, 7, 4)]
    with survives(program, x) as runtime:
        pinned = f"cpu:{machine_cores()[0]}"
        plans = [
            by_module(runtime, one),
            one_region(runtime, ORT),
            one_region(runtime, two),
            one_region(runtime, OPENVINO),
            eager_plan(runtime),
            by_module(runtime, two),
            by_module(runtime, ORT),
            one_region(runtime, ORT, pinned),
            op_by_op(runtime, one),
            mixed(runtime, (ORT, Rewrite(), OPENVINO), pinned),
            *divided(runtime),
        ]
        whole_calls = {()} | {witnessed(plan) for plan in plans}
        with traffic(runtime, model, inputs, notes) as flow:
            for turn in range(num_swaps):
                plan = plans[turn % len(plans)]
                runtime.swap(plan)
                assert runtime.plan == plan
        assert flow.wrong == []
        assert flow.calls > num_swaps
        assert not runtime.faults
        assert flow.seen <= whole_calls, "a call ran through regions of two plans"
        assert len(flow.seen) > 3, "the witnesses' plans really served"
        assert not [d for d in runtime.decisions if "rolled back" in d.outcome]


def op_by_op(runtime: Runtime, rewrite: Rewrite) -> Plan:
    graph = runtime.program.graph
    return ordered(graph, tuple(Region(ops=(op.name,), rewrite=rewrite) for op in graph.ops))


def mixed(runtime: Runtime, rewrites: Sequence[Rewrite], engine: str) -> Plan:
    """Regions take turns in backend and in engine."""
    turns = zip(by_module(runtime).regions, itertools.cycle(rewrites), strict=False)
    regions = [
        Region(ops=region.ops, rewrite=rewrite, engine=engine if index % 2 else "caller")
        for index, (region, rewrite) in enumerate(turns)
    ]
    return ordered(runtime.program.graph, tuple(regions))


def divided(runtime: Runtime) -> list[Plan]:
    """Over two cores, where there are two."""
    cores = [f"cpu:{core}" for core in machine_cores()[:2]]
    if len(cores) < 2:
        return []
    graph, one = runtime.program.graph, Rewrite(backend="onnxruntime", threads=1)
    return [
        whole(graph, engine=team(cores), rewrite=one, split=split)
        for split in (Split(), Split(shares=(3, 1)), Split(how="interleaved"))
    ]


def witnessed(plan: Plan) -> tuple[tuple[str, str], ...]:
    """What a call's witnesses write down if it runs wholly on this plan."""
    regions = [r for r in plan.regions if r.rewrite.backend.startswith("witness")]
    return tuple((region.rewrite.backend, region.name) for region in regions)


@pytest.mark.capability("core.hot-swap")
def test_F1_swaps_under_eight_threads_lose_and_mix_nothing(registered: Add) -> None:
    swap_under_load(30, registered)


@pytest.mark.soak
@pytest.mark.timeout(900)
@pytest.mark.capability("core.hot-swap")
def test_F1_a_thousand_swaps_under_eight_threads_lose_and_mix_nothing(registered: Add) -> None:
    swap_under_load(1000, registered)


def test_F1_a_walk_over_legal_moves_gives_eagers_answers() -> None:
    """Each plan one move from the last, as a search or an agent would go."""
    program, model, x = captured(convnet)
    engines = ["caller", f"cpu:{machine_cores()[0]}"]
    with survives(program, x, engines=engines) as runtime, torch.no_grad():
        space = runtime.space
        plan, served = runtime.plan, set()
        draw = torch.Generator().manual_seed(0)
        for _ in range(15):
            moves = [m for m in legal_moves(plan, space) if "inductor" not in str(m)]
            move = moves[int(torch.randint(len(moves), (), generator=draw))]
            plan = move.apply(plan, space.graph)
            runtime.swap(plan, str(move))
            assert runtime.plan == plan
            served.add(plan)
            for batch in (2, 3):
                given = torch.randn(batch, 3, 8, 8)
                agree(runtime(given), model(given))
        assert len(served) > 5


def test_F1_a_model_in_parts_changes_all_its_parts_together(registered: Add) -> None:
    notes = Notes()
    one, two = Rewrite(backend="witness one"), Rewrite(backend="witness two")
    registered(Witness(one.backend, notes))
    registered(Witness(two.backend, notes))
    program, model, x = captured(branching)
    x = x.abs()
    with survives(program, x, says="not captured") as runtime:
        assert len(runtime.program.fragments) > 1
        plans = [one_region(runtime, one), one_region(runtime, two), one_region(runtime, ORT)]
        with traffic(runtime, model, [x, -x, x * 2, -x * 2], notes) as flow:
            for turn in range(18):
                runtime.swap(plans[turn % len(plans)])
        assert flow.wrong == []
        backends = [{backend for backend, _ in regions} for regions in flow.seen]
        assert all(len(names) <= 1 for names in backends), "a call ran on two plans"
        assert {name for names in backends for name in names} == {one.backend, two.backend}


def test_F1_a_closed_runtime_takes_no_new_plan_and_still_answers() -> None:
    program, model, x = captured(mlp)
    with survives(program, x) as runtime, torch.no_grad():
        pinned = one_region(runtime, ORT, f"cpu:{machine_cores()[0]}")
        runtime.swap(pinned)
        agree(runtime(x), model(x))
        runtime.close()
        agree(runtime(x), model(x))
        with pytest.raises(GearshiftError), nothing_left():
            runtime.swap(pinned)


@pytest.mark.capability("core.threads")
@pytest.mark.parametrize("kind", [Counted, CountedOpenVino], ids=["onnxruntime", "openvino"])
def test_F1_outputs_held_by_eight_threads_never_change(
    kind: type[Counted], registered: Add
) -> None:
    counted = kind()
    registered(counted)
    program, model, ids = captured(encoder)
    with survives(program, ids) as runtime:
        plan = by_module(runtime, Rewrite(backend=counted.name))
        runtime.swap(plan)
        runs = counted.runs
        sizes = [(2, 7), (3, 5), (2, 7), (1, 4)]

        def call_and_hold(seed: int) -> tuple[list[Tensor], list[Tensor], list[Tensor]]:
            inputs = [token_ids(*sizes[(seed + i) % len(sizes)]) for i in range(50)]
            held = [runtime(given) for given in inputs]
            return inputs, held, [answer.clone() for answer in held]

        with ThreadPoolExecutor(NUM_THREADS) as pool:
            batches = list(pool.map(call_and_hold, range(NUM_THREADS)))
        for _ in range(50):
            runtime(ids)
        homes: set[int] = set()
        for inputs, held, copies in batches:
            for given, answer, kept in zip(inputs, held, copies, strict=True):
                assert torch.equal(answer, kept), "an answer given away was written to"
                with torch.no_grad():
                    agree(answer, model(given))
                homes.add(answer.data_ptr())
        assert len(homes) == NUM_THREADS * 50, "no two answers share memory"
        assert runtime.plan == plan
        assert counted.runs - runs > NUM_THREADS * 25, "the plan, not eager, answered"


class OffWeight(EagerBackend):
    """Eager with one weight a thousandth too large: the whole tensor, or its largest number."""

    name = "off weight"

    def __init__(self, weight: str, *, single: bool = False) -> None:
        self.weight, self.single = weight, single
        self.runs = 0

    def build(self, order: Order) -> Executable:
        assert order.fragment.fx is not None
        cut = order.fragment.fx.cut(order.ops, order.sizes)
        weights = [self._weight(name, order.fragment.weights[name]) for name in cut.weights]

        def run(*inputs: Any) -> Sequence[Tensor]:
            self.runs += 1
            return cut.body.forward(*inputs, *weights)  # type: ignore[no-any-return]

        return replaced(super().build(order), run)

    def _weight(self, name: str, tensor: Tensor) -> Tensor:
        if name != self.weight:
            return tensor
        off = tensor.clone()
        flat = off.view(-1)
        (flat[flat.abs().argmax()] if self.single else flat).mul_(1 + 1e-3)
        return off


class Wrong(EagerBackend):
    """Eager with a factor that can be set while it serves."""

    name = "wrong"
    factor = 1.0
    runs = 0

    def build(self, order: Order) -> Executable:
        built = super().build(order)

        def run(*inputs: Any) -> Sequence[Tensor]:
            self.runs += 1
            return [output * self.factor for output in built.run(*inputs)]

        return replaced(built, run)


class WrongElsewhere(Wrong):
    """Right at the example's batch size only."""

    name = "wrong elsewhere"

    def __init__(self, batch: int) -> None:
        self.batch = batch

    def build(self, order: Order) -> Executable:
        built = EagerBackend.build(self, order)

        def run(*inputs: Any) -> Sequence[Tensor]:
            self.runs += 1
            factor = 1.0 if inputs[0].shape[0] == self.batch else 1.01
            return [output * factor for output in built.run(*inputs)]

        return replaced(built, run)


@pytest.mark.capability("core.verify")
@pytest.mark.parametrize("factor", [1.01, 1.0003, -1.0, float("nan"), float("inf"), 0.0], ids=str)
def test_F3_a_plan_that_is_wrong_from_the_start_never_serves(
    factor: float, registered: Add, counted: Counted
) -> None:
    backend = Wrong()
    backend.factor = factor
    registered(backend)
    program, model, x = captured(mlp)
    with survives(program, x) as runtime, torch.no_grad():
        good = one_region(runtime, Rewrite(backend=counted.name))
        runtime.swap(good)
        for plan in (
            one_region(runtime, Rewrite(backend="wrong")),
            by_module(runtime, Rewrite(backend="wrong")),
            Plan(regions=(*by_module(runtime).regions[:-1], _last(runtime, "wrong"))),
        ):
            with pytest.raises(VerifyError, match="differs"):
                runtime.swap(plan)
            assert runtime.plan == good
            assert "refused" in runtime.decisions[-1].outcome
            agree(runtime(x), model(x))
        backend.factor = 1.0
        assert serves(runtime, plan, backend, x), "the same plan serves once it is right"


def serves(runtime: Runtime, plan: Plan, backend: Any, x: Tensor) -> bool:
    """Whether, after a swap, the backend's own regions answer a call."""
    runtime.swap(plan)
    runs = backend.runs
    runtime(x)
    return backend.runs > runs and runtime.plan == plan


def _last(runtime: Runtime, backend: str) -> Region:
    region = by_module(runtime).regions[-1]
    return Region(ops=region.ops, rewrite=Rewrite(backend=backend))


WEIGHTS = [
    f"p_module_{layer}_{kind}"
    for layer in ("first", "second", "last")
    for kind in ("weight", "bias")
]


@pytest.mark.capability("core.verify")
@pytest.mark.parametrize("weight", WEIGHTS)
def test_F3_a_weight_off_by_a_thousandth_is_refused(weight: str, registered: Add) -> None:
    """All of its numbers, or only the largest."""
    program, _, x = captured(mlp)
    with survives(program, x) as runtime:
        assert [value.name for value in runtime.program.graph.weights] == WEIGHTS
        for backend, cuts in (
            (OffWeight(weight), (one_region, by_module)),
            (OffWeight(weight, single=True), (one_region, by_module)),
            (OffWeight(""), ()),
        ):
            registered(backend)
            for cut in cuts:
                with pytest.raises(VerifyError, match="differs"):
                    runtime.swap(cut(runtime, Rewrite(backend=backend.name)))
                assert runtime.plan == eager_plan(runtime)
        assert serves(runtime, by_module(runtime, Rewrite(backend=backend.name)), backend, x)


@pytest.mark.capability("core.verify")
def test_F3_a_plan_wrong_at_other_sizes_never_serves_those(registered: Add) -> None:
    program, model, x = captured(mlp)
    backend = WrongElsewhere(batch=x.shape[0])
    registered(backend)
    with survives(program, x) as runtime, torch.no_grad():
        plan = one_region(runtime, Rewrite(backend=backend.name))
        runtime.swap(plan)
        for batch in (1, 2, 3, 4, 5) * 5:
            given = torch.randn(batch, 16)
            agree(runtime(given), model(given))
            assert runtime.settle(SOON_S)
        runs = backend.runs
        agree(runtime(x), model(x))
        assert backend.runs == runs + 1, "the example's own size is served by the plan"
        assert runtime.plan == plan


@pytest.mark.capability("core.verify")
@pytest.mark.parametrize("after_s", [0.0, 2.0], ids=["at once", "later"])
def test_F3_a_plan_that_turns_wrong_is_rolled_back(after_s: float, registered: Add) -> None:
    backend = Wrong()
    registered(backend)
    program, model, x = captured(mlp)
    with survives(program, x) as runtime, torch.no_grad():
        plan = one_region(runtime, Rewrite(backend=backend.name))
        runtime.swap(plan)
        start_s = time.monotonic()
        while time.monotonic() - start_s < after_s:
            agree(runtime(x), model(x))
            time.sleep(0.01)
        assert runtime.plan == plan
        backend.factor = 1.01
        assert seconds_served(runtime, plan, x) < (1.0 if after_s == 0 else 4.0)
        assert runtime.plan == eager_plan(runtime)
        assert "rolled back" in runtime.decisions[-2].outcome
        assert runtime.decisions[-1].summary == "eager"
        for _ in range(10):
            agree(runtime(x), model(x))
        with pytest.raises(VerifyError):
            runtime.swap(plan)


class Slow(EagerBackend):
    """Can be made to keep a call for some seconds."""

    name = "slow"
    pause_s = 0.0

    def build(self, order: Order) -> Executable:
        built = super().build(order)

        def run(*inputs: Any) -> Sequence[Tensor]:
            time.sleep(self.pause_s)
            return built.run(*inputs)

        return replaced(built, run)


@pytest.mark.capability("core.verify")
def test_F3_a_slow_call_on_the_old_plan_does_not_delay_the_roll_back(registered: Add) -> None:
    slow, wrong = Slow(), Wrong()
    registered(slow)
    registered(wrong)
    program, model, x = captured(mlp)
    with survives(program, x) as runtime, torch.no_grad(), ThreadPoolExecutor(1) as pool:
        runtime.swap(one_region(runtime, Rewrite(backend=slow.name)))
        slow.pause_s = 2.5
        waiting = pool.submit(runtime, x)
        time.sleep(0.2)
        plan = one_region(runtime, Rewrite(backend=wrong.name))
        runtime.swap(plan)
        wrong.factor = 1.01
        assert seconds_served(runtime, plan, x) < 1.0
        agree(waiting.result(), model(x))


def seconds_served(runtime: Runtime, plan: Plan, x: Tensor) -> float:
    """Calls until the plan is out of force; how long that took."""
    start_s = time.monotonic()
    while runtime.plan == plan and time.monotonic() - start_s < SOON_S:
        runtime(x)
        time.sleep(0.01)
    return time.monotonic() - start_s


class Lenient(Wrong):
    """Takes indices the model refuses."""

    name = "lenient"

    def build(self, order: Order) -> Executable:
        built = super().build(order)
        return replaced(built, lambda ids: built.run(ids.clamp(0, VOCABULARY - 1)))


@pytest.mark.capability("core.verify")
def test_F3_sampling_goes_on_after_a_call_the_model_refuses(registered: Add) -> None:
    """A plan answers where the model raises: no reason to stop looking."""
    backend = Lenient()
    registered(backend)
    program, _, ids = captured(encoder)
    with survives(program, ids) as runtime, torch.no_grad():
        plan = one_region(runtime, Rewrite(backend=backend.name))
        runtime.swap(plan)
        with suppress(IndexError):
            runtime(ids + VOCABULARY)
        assert runtime.settle(SOON_S)
        backend.factor = 1.01
        assert seconds_served(runtime, plan, ids) < 4.0
        assert runtime.plan == eager_plan(runtime)


def test_F3_an_illegal_plan_is_refused_before_anything_is_built(counted: Counted) -> None:
    program, _, x = captured(mlp)
    with survives(program, x) as runtime:
        good = one_region(runtime, Rewrite(backend=counted.name))
        runtime.swap(good)
        builds = counted.builds
        for wrong in (
            Plan(regions=()),
            Plan(regions=good.regions * 2),
            one_region(runtime, Rewrite(backend="nonesuch")),
            one_region(runtime, Rewrite(backend=counted.name), "cpu:900"),
            one_region(runtime, Rewrite(backend=counted.name, threads=900)),
        ):
            with pytest.raises(GearshiftError):
                runtime.swap(wrong)
            assert runtime.plan == good
        assert counted.builds == builds


LEAK_BYTES = 32 * MB
WIDTH = 1024


def swap_and_weigh(num_swaps: int) -> None:
    """The model's 4 MB come again in every compiled plan: one of them kept each time would show."""
    model, x = mlp(WIDTH)
    with survives(model, x) as runtime, torch.no_grad():
        plans = [
            one_region(runtime, ORT),
            by_module(runtime, OPENVINO),
            by_module(runtime, ORT),
            one_region(runtime, OPENVINO),
            eager_plan(runtime),
        ]
        start_bytes = 0
        for turn in range(num_swaps + 2 * len(plans)):
            if turn == 2 * len(plans):
                start_bytes = settled_bytes(runtime)
            runtime.swap(plans[turn % len(plans)])
            agree(runtime(x), model(x))
            runtime(torch.randn(3, 16))
        assert settled_bytes(runtime) - start_bytes < LEAK_BYTES
        assert runtime.memory.region_bytes == 0


def settled_bytes(runtime: Runtime) -> int:
    assert runtime.settle(SOON_S)
    gc.collect()
    ctypes.CDLL(None).malloc_trim(0)
    return psutil.Process().memory_info().rss


def test_F4_swaps_do_not_pile_up_memory() -> None:
    swap_and_weigh(25)


@pytest.mark.soak
@pytest.mark.timeout(900)
def test_F4_a_thousand_swaps_do_not_pile_up_memory() -> None:
    swap_and_weigh(1000)


def large_convnet() -> tuple[nn.Module, Tensor]:
    """Calls of some milliseconds, as people serve."""
    return convnet()[0], torch.randn(64, 3, 32, 32)


Latencies = list[float]


def change_all_the_time(seconds: float) -> tuple[list[Latencies], Latencies]:
    """Seconds of calls on each of two plans alone, and while they change places every 10 ms."""
    program, model, x = captured(large_convnet)
    with survives(program, x) as runtime, torch.no_grad():
        plans = [one_region(runtime, ORT), one_region(runtime, OPENVINO)]
        changes, expected = runtime._changes, model(x)

        def call(until_s: float) -> Latencies:
            calls = []
            while time.monotonic() < until_s:
                start_s = time.perf_counter()
                result = runtime(x)
                calls.append(time.perf_counter() - start_s)
                agree(result, expected)
            return calls

        alone = []
        for plan in plans:
            changes.adopt(plan, "alone", None)
            alone.append(call(time.monotonic() + seconds))
        over, numbers = threading.Event(), itertools.count()

        def swap() -> None:
            while not over.wait(0.01):
                changes.adopt(plans[next(numbers) % 2], "again", None)

        swapper = threading.Thread(target=swap)
        swapper.start()
        changing = call(time.monotonic() + seconds)
        over.set()
        swapper.join()
        assert next(numbers) > 10 * seconds
    return alone, changing


@pytest.mark.capability("core.hot-swap")
def test_F2_a_swap_every_10_ms_loses_no_call() -> None:
    alone, changing = change_all_the_time(1.0)
    assert len(changing) > min(map(len, alone)) / 10, "calls go on, whoever swaps"


@pytest.mark.soak
def test_F2_a_swap_every_10_ms_for_a_minute_does_not_delay_calls() -> None:
    alone, changing = change_all_the_time(60.0)
    *steady, swapping = (sorted(calls)[int(0.99 * len(calls))] for calls in (*alone, changing))
    told = f"p99 alone {steady}, changing {swapping}"
    assert swapping <= 2 * max(steady), told
