"""Recurrent layers by any setting, on any engines: the same outputs, the same states."""

import ctypes
import os
import threading
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from time import monotonic, sleep
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn
from torch.nn.utils.rnn import PackedSequence, pack_padded_sequence, pad_packed_sequence

import gearshift
from gearshift.act.compile import CHUNK
from gearshift.act.engines import open_engine, parse_engine
from gearshift.act.engines.team import RoundsJob
from gearshift.act.layers import Strides
from gearshift.act.lower.shares import Shares
from gearshift.act.lower.unroll import elsewhere
from gearshift.act.recurrent import choice
from gearshift.act.recurrent.cell import Cell
from gearshift.act.recurrent.course import Asked, Course
from gearshift.act.recurrent.kernels import by_torch
from gearshift.act.recurrent.rows import Rows
from gearshift.act.recurrent.runner import Chunk, Profile, Runner
from gearshift.act.recurrent.walk import Walk
from gearshift.act.recurrent.ways import ByDirections, ByRows, OnOne, Wavefront
from gearshift.act.verify import error_between
from gearshift.errors import MemoryLimitError, PlanError
from gearshift.plan import Rewrite, Split
from gearshift.plan.cut import around
from gearshift.plan.plan import Region, whole
from gearshift.plan.rewrite import EAGER
from gearshift.plan.unroll import (
    AT_ONCE,
    ROLLED,
    SetSteps,
    SetUnroll,
    Steps,
    Unroll,
    Way,
    alike,
    choices,
    ways,
)
from gearshift.tell_regions import strides_of

CORES = [f"cpu:{core}" for core in sorted(os.sched_getaffinity(0))[:2]]
TEAM = "+".join(CORES)
SWITCHES, ROWS = 50, Split(how="rows")
SETTINGS = [ROLLED, Steps(then=3), Steps(first=4, then=1), AT_ONCE]
ARCHITECTURES: list[tuple[Any, dict[str, Any]]] = [
    (nn.LSTM, {"num_layers": 2}),
    (nn.LSTM, {"bidirectional": True, "num_layers": 2, "batch_first": True}),
    (nn.LSTM, {"proj_size": 3, "num_layers": 2}),
    (nn.LSTM, {"bias": False}),
    (nn.GRU, {"num_layers": 3, "batch_first": True}),
    (nn.GRU, {"bidirectional": True}),
    (nn.RNN, {"num_layers": 2}),
    (nn.RNN, {"nonlinearity": "relu", "bidirectional": True, "bias": False}),
]


def unrolled(
    runtime: gearshift.Runtime, unroll: Unroll, engine: str, split: Split | None = None
) -> Any:
    return by_way(runtime, Way(engine, unroll, split))


def by_way(runtime: gearshift.Runtime, way: Way) -> Any:
    (op,) = runtime.space.stacks
    plan = around(runtime.program.graph, (op,), EAGER)
    return SetUnroll(region=op, **way._asdict()).apply(plan, runtime.program.graph)


def assert_same(got: Any, want: Any) -> None:
    leaves = [torch.utils._pytree.tree_leaves(_plain(value)) for value in (got, want)]
    assert len(leaves[0]) == len(leaves[1])
    for have, wanted in zip(*leaves, strict=True):
        assert error_between(wanted, have) < 1e-5


def _plain(value: Any) -> Any:
    output, state = value
    return (tuple(output), state) if isinstance(output, PackedSequence) else value


def example(module: Any, num_rows: int = 4, num_steps: int = 9) -> tuple[Any, ...]:
    first, second = (num_rows, num_steps) if module.batch_first else (num_steps, num_rows)
    count = module.num_layers * (2 if module.bidirectional else 1)
    hidden = torch.randn(count, num_rows, module.proj_size or module.hidden_size)
    state = (hidden, torch.randn(count, num_rows, module.hidden_size))
    given_state = state if isinstance(module, nn.LSTM) else hidden
    return torch.randn(first, second, module.input_size), given_state


@pytest.mark.capability("rnn.rolled")
@pytest.mark.capability("rnn.hybrid")
@pytest.mark.capability("rnn.wavefront")
@pytest.mark.parametrize(("kind", "options"), ARCHITECTURES)
def test_every_way_gives_what_the_module_gives(kind: Any, options: dict[str, Any]) -> None:
    torch.manual_seed(1)
    module = kind(5, 6, **options).eval()
    args = example(module)
    with gearshift.adapt(module, args) as runtime, torch.no_grad():
        (stack,) = runtime.space.stacks.values()
        tried = [Way("caller", alike(stack.num_layers, steps)) for steps in SETTINGS]
        for way in (*tried, *ways(stack, runtime.space)):
            runtime.swap(by_way(runtime, way))
            other = example(module)
            assert_same(runtime(*other), module(*other))
            longer = example(module, num_rows=2, num_steps=13)
            assert_same(runtime(*longer), module(*longer))


@pytest.mark.parametrize(("kind", "options"), ARCHITECTURES[:2])
def test_every_way_serves_in_inference_mode_and_with_states_of_any_strides(
    kind: Any, options: dict[str, Any]
) -> None:
    """Threads of engines are in no inference mode; kernels read states as if they were in a row."""
    torch.manual_seed(1)
    module = kind(5, 6, **options).eval()
    args = example(module)
    with gearshift.adapt(module, args) as runtime:
        (stack,) = runtime.space.stacks.values()
        every = list(ways(stack, runtime.space))
        every += [Way("caller", alike(stack.num_layers, Steps(kernel="onednn")))]
        for way in every:
            runtime.swap(by_way(runtime, way))
            x, state = example(module)
            turned = tuple(s.transpose(1, 2).contiguous().transpose(1, 2) for s in state)
            alone = tuple(s[:, :1].expand(-1, s.shape[1], -1) for s in state)
            for given_state in (turned, alone):
                with torch.inference_mode():
                    assert_same(runtime(x, given_state), module(x, given_state))
            assert runtime.faults == {}


@pytest.mark.capability("rnn.per-layer")
def test_each_layer_has_a_setting_of_its_own() -> None:
    module = nn.LSTM(5, 6, num_layers=3).eval()
    args = (torch.randn(11, 2, 5),)
    layers = (Steps(then=4), ROLLED, Steps(then=3, kernel="onnxruntime"))
    with gearshift.adapt(module, args) as runtime, torch.no_grad():
        for engine in ("caller", TEAM):
            runtime.swap(unrolled(runtime, Unroll(layers=layers), engine, None))
            assert_same(runtime(*args), module(*args))
        (op,) = runtime.space.stacks
        move = SetSteps(region=op, layer=1, steps=AT_ONCE)
        changed = move.apply(runtime.plan, runtime.program.graph)
        assert "by 4 | all at once | by 3 (onnxruntime)" in changed.summary


class Reader(nn.Module):
    """Packs its rows itself, as most models with ragged batches do."""

    def __init__(self, kind: Any = nn.LSTM, **options: Any) -> None:
        super().__init__()
        self.embed = nn.Embedding(20, 5)
        self.rnn = kind(5, 6, batch_first=True, **options)
        self.tags = nn.Linear(12 if options.get("bidirectional") else 6, 3)

    def forward(self, ids: Tensor, lengths: Tensor) -> tuple[Tensor, Any]:
        packed = pack_padded_sequence(
            self.embed(ids), lengths, batch_first=True, enforce_sorted=False
        )
        states, last = self.rnn(packed)
        padded, _ = pad_packed_sequence(states, batch_first=True, total_length=ids.shape[1])
        return self.tags(padded), last


@pytest.mark.capability("rnn.ragged")
@pytest.mark.parametrize("kind", [nn.LSTM, nn.GRU])
@pytest.mark.parametrize("options", [{"num_layers": 2}, {"bidirectional": True}])
def test_packed_sequences_inside_a_model(kind: Any, options: dict[str, Any]) -> None:
    torch.manual_seed(2)
    model = Reader(kind, **options).eval()
    args = (torch.randint(20, (5, 12)), torch.tensor([3, 12, 1, 7, 7]))
    with pytest.warns(UserWarning, match="not captured"):
        runtime = gearshift.adapt(model, args)
    with runtime, torch.no_grad():
        (stack,) = runtime.space.stacks.values()
        assert stack.ragged
        tried = [Way("caller", alike(stack.num_layers, steps)) for steps in SETTINGS]
        for way in (*tried, *ways(stack, runtime.space)):
            runtime.swap(by_way(runtime, way))
            for lengths in ([3, 12, 1, 7, 7], [12, 12, 12, 12, 12], [1, 1, 2, 1, 1]):
                other = (torch.randint(20, (5, 12)), torch.tensor(lengths))
                assert_same(runtime(*other), model(*other))


@pytest.mark.capability("rnn.ragged")
def test_a_packed_sequence_in_and_out() -> None:
    module = nn.LSTM(5, 6, num_layers=2, proj_size=4).eval()
    lengths = torch.tensor([2, 6, 4])
    packed = pack_padded_sequence(torch.randn(6, 3, 5), lengths, enforce_sorted=False)
    state = (torch.randn(2, 3, 4), torch.randn(2, 3, 6))
    with gearshift.adapt(module, (packed, state)) as runtime, torch.no_grad():
        runtime.swap(unrolled(runtime, alike(2, Steps(then=2)), "caller", None))
        assert_same(runtime(packed, state), module(packed, state))
        padded = torch.randn(4, 3, 5)
        assert_same(runtime(padded, state), module(padded, state))


@pytest.mark.capability("rnn.stream")
@pytest.mark.parametrize("kind", [nn.LSTM, nn.GRU, nn.RNN])
def test_layers_that_are_given_their_state_run_on_onnx_too(kind: Any) -> None:
    module = kind(5, 6, num_layers=2).eval()
    args = example(module)
    with gearshift.adapt(module, args) as runtime, torch.no_grad():
        runtime.swap(whole(runtime.program.graph, rewrite=Rewrite(backend="onnxruntime")))
        other = example(module, num_rows=3)
        for given_args in (args, other):
            assert_same(runtime(*given_args), module(*given_args))


def peak_bytes(call: Callable[[], object]) -> int:
    """By how much the process grew at most meanwhile, as the kernel saw it."""
    ctypes.CDLL(None).malloc_trim(0)  # what was free is given back
    Path("/proc/self/clear_refs").write_text("5")  # the peak begins anew
    before_bytes = _status_bytes("VmRSS")
    call()
    return _status_bytes("VmHWM") - before_bytes


def _status_bytes(name: str) -> int:
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(1024 * int(line.split()[1]) for line in lines if line.startswith(name))


@pytest.mark.capability("rnn.constraints")
def test_a_sequence_whose_full_unroll_does_not_fit_is_taken_in_chunks() -> None:
    module = nn.GRU(16, 128, num_layers=2).eval()
    x = torch.randn(2000, 16, 16)
    made_mb, gates_mb = 2 * 2000 * 16 * 128 * 4e-6, 2000 * 16 * 384 * 4e-6
    limit = int(1e6 * (3 + made_mb + gates_mb / 2))
    objective = gearshift.Objective(memory_limit=limit)
    with (
        gearshift.adapt(module, x, objective=objective, policy="keep") as runtime,
        torch.no_grad(),
    ):
        with pytest.raises(MemoryLimitError):
            runtime.swap(unrolled(runtime, alike(2, AT_ONCE), "caller", None))
        runtime.swap(unrolled(runtime, alike(2, Steps(then=64, kernel="torch")), "caller", None))
        assert_same(runtime(x), module(x))
        assert runtime.memory.total_bytes <= limit
        assert peak_bytes(lambda: runtime(x)) < limit < peak_bytes(lambda: module(x))


@pytest.mark.capability("rnn.constraints")
def test_a_longer_sequence_is_not_taken_all_at_once_where_a_shorter_one_was() -> None:
    """There is room for what the example needs, not for thirty times that: longer ones run in
    chunks, and are not built for their size."""
    module = nn.LSTM(16, 128).eval()
    x, longer = torch.randn(100, 4, 16), torch.randn(3000, 4, 16)
    objective = gearshift.Objective(memory_limit=int(6e6))
    with (
        gearshift.adapt(module, x, objective=objective, policy="keep") as runtime,
        torch.no_grad(),
    ):
        runtime.swap(unrolled(runtime, alike(1, AT_ONCE), "caller", None))
        for _ in range(5):
            assert_same(runtime(longer), module(longer))
            runtime.settle()
        (variants,) = runtime._serving.in_force.variants
        assert any("MB would be held" in why for why in variants.refusals.values())
        regions = [region for variant in variants.built for region in variant.regions]
        unrolls = [region.unroll for region in regions if region.unroll is not None]
        assert [unroll.layers[0].then for unroll in unrolls] == [0, CHUNK], "for any length"
        assert runtime.memory.total_bytes <= 6e6


@pytest.mark.parametrize("steps", [Steps(first=16, then=1), Steps(first=4, then=8)])
def test_the_first_chunk_has_a_kernel_for_its_own_size(
    steps: Steps, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[int] = []
    real = choice._measured

    def measured(cell: Cell, order: Any, size: int, num_rows: int) -> str:
        asked.append(size)
        return real(cell, order, size, num_rows)

    monkeypatch.setattr(choice, "_measured", measured)
    module = nn.GRU(7, 9).eval()
    args = (torch.randn(40, 3, 7),)
    with gearshift.adapt(module, args, policy="keep") as runtime, torch.no_grad():
        runtime.swap(unrolled(runtime, alike(1, steps), "caller", None))
        assert set(asked) == {steps.first, steps.then}
        assert_same(runtime(*args), module(*args))


@pytest.mark.capability("rnn.stream")
def test_a_chunk_at_a_time_with_the_state_in_and_out() -> None:
    module = nn.GRU(5, 6, num_layers=2).eval()
    x, state = torch.randn(12, 1, 5), torch.zeros(2, 1, 6)
    with gearshift.adapt(module, (x[:3], state)) as runtime, torch.no_grad():
        runtime.swap(unrolled(runtime, alike(2, AT_ONCE), "caller", None))
        parts = []
        for at in range(0, 12, 3):
            part, state = runtime(x[at : at + 3], state)
            parts.append(part)
        assert_same((torch.cat(parts), state), module(x))


STEPS = st.sampled_from(choices())


@pytest.mark.capability("rnn.switch")
@settings(max_examples=40, deadline=None)
@given(
    switches=st.lists(STEPS, min_size=1, max_size=30),
    lengths=st.lists(st.integers(1, 40), min_size=1, max_size=5),
    kind=st.sampled_from([nn.LSTM, nn.GRU]),
)
def test_any_sequence_of_switches_gives_the_modules_output(
    switches: list[Steps], lengths: list[int], kind: Any
) -> None:
    torch.manual_seed(3)
    module, lengths = kind(4, 3), sorted(lengths, reverse=True)
    weights = tuple(weight.detach() for weight in module._flat_weights)
    cell = Cell(kind=module.mode.lower(), weights=weights, has_biases=True)
    x, coming, kernel = torch.randn(lengths[0], len(lengths), 4), iter(switches), by_torch(cell)
    rows = Rows.ragged(lengths) if len(set(lengths)) > 1 else Rows(lengths[0], len(lengths))
    state = tuple(torch.zeros(1, len(lengths), 3) for _ in cell.state_sizes())
    walk = Walk(cell, x, state, rows)
    while not walk.done:
        walk.go(next(coming, switches[-1]), kernel, rows.num_steps)
    with torch.no_grad():
        packed, last = module(pack_padded_sequence(x, torch.tensor(lengths)))
    wanted = pad_packed_sequence(packed)[0]
    assert walk.out is not None
    assert_same((walk.out, walk.final), (wanted, last if kind is nn.LSTM else (last,)))


@pytest.fixture(scope="module")
def engines() -> Iterator[list[Any]]:
    opened = [open_engine(parse_engine(name)) for name in CORES]
    yield opened
    for engine in opened:
        engine.close()


WAYS = ("on one", "rows", "wavefront", "directions")


@pytest.mark.capability("rnn.switch")
@settings(max_examples=60, deadline=None)
@given(
    turns=st.lists(st.tuples(st.sampled_from(WAYS), STEPS, st.integers(0, 6)), max_size=8),
    lengths=st.lists(st.integers(1, 30), min_size=1, max_size=4),
    kind=st.sampled_from([nn.LSTM, nn.GRU, nn.RNN]),
    layers=st.integers(2, 3),
    both=st.booleans(),
)
def test_F5_a_call_goes_on_any_way_from_wherever_it_has_come(
    engines: list[Any],
    turns: list[tuple[str, Steps, int]],
    lengths: list[int],
    kind: Any,
    layers: int,
    both: bool,
) -> None:
    """Each way is left after some chunks, whatever engines are at work then."""
    torch.manual_seed(4)
    module, lengths = kind(4, 3, layers, bidirectional=both), sorted(lengths, reverse=True)
    cells, each = cells_of_module(module), 1 + both
    rows = Rows.ragged(lengths) if len(set(lengths)) > 1 else Rows(lengths[0], len(lengths))
    x = torch.randn(lengths[0], len(lengths), 4)
    sizes = (layers * each, len(lengths), 3)
    before = [torch.randn(sizes) for _ in cells[0][0].state_sizes()]
    states = tuple(
        tuple(tuple(part[n : n + 1] for part in before) for n in range(i * each, (i + 1) * each))
        for i in range(layers)
    )
    course = Course(cells, Asked(x, states, rows))
    able = {"on one", "rows", "directions" if both else "wavefront"}
    with torch.no_grad():
        for name, steps, chunks in turns:
            if name in able:
                go(course, name, cells, steps, engines, chunks)
        while not course.done:
            go(course, "on one", cells, AT_ONCE, engines, 1000)
        state = tuple(before) if kind is nn.LSTM else before[0]
        packed, wanted = module(pack_padded_sequence(x, torch.tensor(lengths)), state)
    parts = range(len(before))
    finals = [torch.cat([s[i] for made in course.finals for s in made]) for i in parts]
    last = tuple(finals) if kind is nn.LSTM else finals[0]
    assert_same((course.out, last), (pad_packed_sequence(packed)[0], wanted))


def go(
    course: Course,
    name: str,
    cells: Sequence[tuple[Cell, ...]],
    steps: Steps,
    engines: list[Any],
    chunks: int,
) -> None:
    """Until it is done or so many chunks were made."""
    left = iter(range(chunks))

    def leave() -> bool:
        return next(left, None) is None

    profile = Profile(layers=tuple((steps, tuple(map(by_torch, layer))) for layer in cells))
    count = len(cells)
    spans = [range(1), range(1, count)] if name == "wavefront" else [range(count)] * 2
    runners = [Runner(profile, span) for span in spans]
    if name == "on one":
        OnOne(runners[0])(course, leave)
        return
    ways: dict[str, Any] = {"wavefront": Wavefront, "directions": ByDirections}
    way = ByRows(runners, Shares(2)) if name == "rows" else ways[name](runners)
    RoundsJob(way.rounds(course, leave), engines).result()


def cells_of_module(module: Any) -> list[tuple[Cell, ...]]:
    each = 2 if module.bidirectional else 1
    found = [
        Cell(
            kind=module.mode.lower(),
            weights=tuple(getattr(module, name).detach() for name in names),
            has_biases=True,
            reverse=bool(number % each),
        )
        for number, names in enumerate(module._all_weights)
    ]
    return [tuple(found[i : i + each]) for i in range(0, len(found), each)]


BY_FOUR = alike(2, Steps(then=4))
HERE, SPREAD = Way("caller", BY_FOUR, threads=1), Way(TEAM, BY_FOUR)
IN_ROWS = Way(TEAM, BY_FOUR, ROWS)
GOING_ON = [
    *(
        (both, before, after, False)
        for both in (False, True)
        for before in ("caller", TEAM)
        for after in (HERE, SPREAD, IN_ROWS)
    ),
    (False, "caller", SPREAD, True),
    (True, TEAM, HERE, True),
]


@pytest.mark.capability("rnn.switch")
@pytest.mark.parametrize(("both", "before", "after", "hurried"), GOING_ON)
def test_a_call_under_way_goes_on_on_other_engines(
    both: bool,
    before: str,
    after: Way,
    hurried: bool,
    chunks: list[tuple[Region, Chunk]],
) -> None:
    """Also if there was another plan in between."""
    module = nn.LSTM(5, 6, num_layers=2, bidirectional=both).eval()
    args = (torch.randn(40, 3, 5),)
    with gearshift.adapt(module, args, policy="keep") as runtime, torch.no_grad():
        last = by_way(runtime, after)
        between = unrolled(runtime, alike(2, Steps(then=7)), before)
        runtime.swap(unrolled(runtime, alike(2, Steps(then=10)), before))
        runtime.release()
        coming = [between, last] if hurried else [last]
        for plan in coming:  # an engine that is at work could not build
            runtime._changes.stand_by(plan, "for the test")
        runner = _runners(runtime)[0]
        steps, (kernel, *other) = runner.profile.layers[0]
        reached, go_on = threading.Event(), threading.Event()

        def slow(x: Tensor, state: Any) -> Any:
            reached.set()
            go_on.wait(30)
            return kernel(x, state)

        layers = ((steps, (slow, *other)), *runner.profile.layers[1:])
        runner.profile = replace(runner.profile, layers=layers)
        results: list[Any] = []

        def call() -> None:
            with torch.inference_mode():
                results.append(runtime(*args))

        caller = threading.Thread(target=call)
        caller.start()
        assert reached.wait(30)
        for plan in coming:
            runtime._changes.adopt(plan, "for the test", None, build=False)
        go_on.set()
        caller.join(30)
        assert_same(results[0], module(*args))
        assert runtime.faults == {}
        sizes = {chunk.num_steps for chunk in told_of(runtime, chunks)}
        assert 4 in sizes, "it went on by the settings of the new plan"
        assert 7 not in sizes
        assert hurried or 10 in sizes
        where = {region.engine for region, chunk in chunks if chunk.switch_s is not None}
        assert where == {after.engine}, "on its engines"


@pytest.mark.capability("rnn.switch")
def test_a_call_under_way_goes_on_by_the_new_settings(chunks: list[tuple[Region, Chunk]]) -> None:
    module = nn.LSTM(5, 6, num_layers=2).eval()
    args = (torch.randn(40, 2, 5),)
    with gearshift.adapt(module, args) as runtime, torch.no_grad():
        runtime.swap(unrolled(runtime, alike(2, Steps(then=10)), "caller", None))
        (runner,) = _runners(runtime)
        steps, (kernel,) = runner.profile.layers[0]
        reached, go_on = threading.Event(), threading.Event()

        def slow(x: Tensor, state: Any) -> Any:
            reached.set()
            go_on.wait(30)
            return kernel(x, state)

        layers = ((steps, (slow,)), runner.profile.layers[1])
        runner.profile = replace(runner.profile, layers=layers)
        results: list[Any] = []
        call = threading.Thread(target=lambda: results.append(runtime(*args)))
        call.start()
        assert reached.wait(30)
        runtime.swap(unrolled(runtime, alike(2, Steps(then=5)), "caller", None))
        go_on.set()
        call.join(30)
        assert_same(results[0], module(*args))
        sizes = [chunk.num_steps for chunk in told_of(runtime, chunks)]
        assert sizes[-7:] == [10, 5, 5, 5, 5, 5, 5]
        told = [stride for stride in strides_of(runtime, 0.0) if stride.layer == "layer 0"]
        assert [stride.setting for stride in told[-2:]] == ["by 10", "by 5"], "the report draws it"
        assert told[-1].switched
        assert "settings of layers changed: 1 times within calls under way" in runtime.explain()


@pytest.mark.capability("rnn.switch")
def test_a_plan_that_was_left_computes_by_itself_when_it_has_its_turn_again(
    chunks: list[tuple[Region, Chunk]],
) -> None:
    """Else a trial would compare the plan in force with itself."""
    module = nn.LSTM(5, 6, num_layers=2).eval()
    x = torch.randn(40, 2, 5)
    with gearshift.adapt(module, x, policy="keep") as runtime, torch.no_grad():
        first = by_way(runtime, Way("caller", alike(2, Steps(then=10))))
        second = by_way(runtime, Way("caller", alike(2, Steps(then=4)), threads=1))
        for plan in (first, second):
            runtime._changes.adopt(plan, "for the test", None)
        runtime._changes.begin_trial(first, "for the test", None, credit_s=60.0)
        told_of(runtime, chunks)
        chunks.clear()
        for _ in range(20):
            assert_same(runtime(x), module(x))
        told_of(runtime, chunks)
        made = {(region.rewrite.threads, chunk.num_steps) for region, chunk in chunks}
        assert made == {(None, 10), (1, 4)}


@pytest.mark.capability("rnn.switch")
def test_F5_settings_that_change_in_mid_sequence_change_no_answer() -> None:
    """While sequences flow, and somewhere within one of them."""
    torch.manual_seed(5)
    module = nn.LSTM(16, 32, num_layers=2).eval()
    x = torch.randn(600, 2, 16)
    with gearshift.adapt(module, x, policy="keep") as runtime, torch.no_grad():
        wanted = module(x)
        here = [Way("caller", alike(2, Steps(then=n))) for n in (3, 16, 1)]
        spread = [Way(TEAM, alike(2, Steps(then=n)), how) for n, how in ((5, None), (9, ROWS))]
        plans = [by_way(runtime, way) for way in (here[0], *spread, *here[1:])]
        for plan in plans:
            runtime._changes.stand_by(plan, "for the test")
        answers: list[Any] = []
        stop = threading.Event()

        def call() -> None:
            while not stop.is_set():
                answers.append(runtime(x))

        caller = threading.Thread(target=call)
        caller.start()
        deadline_s, strides = monotonic() + 60, runtime._serving.strides
        while strides.num_switches < SWITCHES and monotonic() < deadline_s:
            for plan in plans:
                runtime._changes.adopt(plan, "for the test", None, build=False)
                sleep(0.01)
            deque(runtime._serving.timings(), maxlen=0)
        stop.set()
        caller.join(60)
        assert strides.num_switches >= SWITCHES, "else nothing was shown"
        for answer in answers:
            assert_same(answer, wanted)


@pytest.fixture
def chunks(monkeypatch: pytest.MonkeyPatch) -> list[tuple[Region, Chunk]]:
    """All that were made, as they are told."""
    made: list[tuple[Region, Chunk]] = []
    add = Strides.add

    def noted(strides: Strides, told: Any) -> None:
        some = list(told)
        made.extend(some)
        add(strides, some)

    monkeypatch.setattr(Strides, "add", noted)
    return made


def told_of(runtime: gearshift.Runtime, chunks: list[tuple[Region, Chunk]]) -> list[Chunk]:
    """Those of the first layer, in order."""
    deque(runtime._serving.timings(), maxlen=0)
    seen = [chunk for _, chunk in chunks if chunk.layer == 0]
    return sorted(seen, key=lambda chunk: chunk.begin_s)


def _runners(runtime: gearshift.Runtime) -> Any:
    (variants,) = runtime._serving.in_force.variants
    runs = [executable.run for executable in variants.built[0].executables]
    return next(run.runners for run in runs if hasattr(run, "runners"))


def test_an_engine_builds_only_the_direction_it_has() -> None:
    module = nn.LSTM(5, 6, bidirectional=True).eval()
    args = (torch.randn(8, 2, 5),)
    with gearshift.adapt(module, args, policy="keep") as runtime, torch.no_grad():
        runtime.swap(unrolled(runtime, alike(1, AT_ONCE), TEAM, None))
        assert_same(runtime(*args), module(*args))
        runners = _runners(runtime)
        built = [[k is not elsewhere for k in r.profile.layers[0][1]] for r in runners]
        assert built == [[True, False], [False, True]]


def test_chunks_tell_how_many_rows_had_a_step(chunks: list[tuple[Region, Chunk]]) -> None:
    module = nn.LSTM(5, 6).eval()
    x = pack_padded_sequence(torch.randn(40, 3, 5), torch.tensor([40, 40, 4]))
    with gearshift.adapt(module, (x,), policy="keep") as runtime, torch.no_grad():
        runtime.swap(unrolled(runtime, alike(1, Steps(then=4)), "caller", None))
        runtime(x)
        rows = [chunk.num_rows for chunk in told_of(runtime, chunks)]
        assert rows[-10:] == [3] + [2] * 9


def test_what_does_not_fit_is_refused() -> None:
    module = nn.LSTM(5, 6, num_layers=2).eval()
    with gearshift.adapt(module, (torch.randn(4, 2, 5),)) as runtime:
        odd = {
            "3 settings for 2 layers": alike(3, ROLLED),
            "no kernel 'abacus'": alike(2, Steps(kernel="abacus")),
            "not a whole sequence": alike(2, Steps(kernel="inductor")),
            "then=-1": alike(2, Steps(then=-1)),
            "then needs a number": alike(2, Steps(first=3)),
        }
        for reason, unroll in odd.items():
            with pytest.raises(PlanError, match=reason):
                runtime.swap(unrolled(runtime, unroll, "caller", None))
        with pytest.raises(PlanError, match="as many threads as it has cores"):
            runtime.swap(by_way(runtime, Way(TEAM, alike(2, ROLLED), None, 1)))
        with pytest.raises(PlanError, match="divided by rows, not by columns"):
            runtime.swap(unrolled(runtime, alike(2, ROLLED), TEAM, Split(how="columns")))


def test_a_failing_layer_does_not_leave_the_others_waiting() -> None:
    module = nn.LSTM(5, 6, num_layers=2).eval()
    args = (torch.randn(40, 2, 5),)
    with gearshift.adapt(module, args) as runtime, torch.no_grad():
        runtime.swap(unrolled(runtime, alike(2, Steps(then=10)), TEAM, None))
        first = _runners(runtime)[0]

        def broken(x: Tensor, state: Any) -> Any:
            raise RuntimeError("broken on purpose")

        steps = first.profile.layers[0][0]
        layers = ((steps, (broken,)), first.profile.layers[1])
        first.profile = replace(first.profile, layers=layers)
        assert_same(runtime(*args), module(*args))


@pytest.mark.parametrize("rows", [Rows(20, 4), Rows.ragged([200, 3, 2, 1])], ids=["even", "ragged"])
def test_rows_shared_out_keep_both_engines_at_work_from_the_first_calls(rows: Rows) -> None:
    """Both are as fast: first one has almost all, then the other, then each its half."""
    shares = Shares(2)
    by_rows = ByRows([], shares)
    for _ in range(3):
        spans = by_rows._spans(rows)
        assert all(span.stop > span.start for span, _ in spans)
        for member, (_, share) in enumerate(spans):
            shares.note(member, share * rows.num_rows, 0.01 * share)
    (first, _), (second, _) = spans
    assert (first.start, first.stop, second.stop) == (0, second.start, 4)
    assert first.stop == (2 if rows.lengths is None else 1), "half of the steps"
