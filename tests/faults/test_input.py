"""Rows C1 to C8 and C10: inputs, models and weights that are not as expected.

The MODEL argument (C9) is in test_model_argument.py.
"""

import copy
import ctypes
import gc
import inspect
import math
import random
import time
import warnings
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any

import numpy as np
import psutil
import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

import gearshift
from faults.models import (
    COMPILED,
    ORT,
    VOCABULARY,
    Branching,
    Convnet,
    Made,
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
from faults.survival import Counted, survives, unharmed
from gearshift import GearshiftError, Rewrite, Runtime
from gearshift.act.engines import NullEngine
from gearshift.errors import InputError
from gearshift.ir.topology import EngineSpec

SOON_S = 10.0
MB = 1 << 20
X = torch.randn(4, 16, generator=torch.Generator().manual_seed(1))


class Scaled(nn.Module):
    """Two inputs, so that one can be missing."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(16, 4)

    def forward(self, x: Tensor, scale: Tensor) -> Tensor:
        return self.linear(x) * scale


def scaled() -> Made:
    torch.manual_seed(0)
    return Scaled().eval(), (X, torch.ones(4))


class Plus(nn.Module):
    """Takes any shape."""

    def forward(self, x: Tensor) -> Tensor:
        return x * 2 + 1


def plus() -> Made:
    return Plus().eval(), X


SCALE = torch.ones(4)
WRONG_CALLS: dict[str, tuple[tuple[Any, ...], dict[str, Any], list[str]]] = {
    "rank": ((torch.tensor(1.0), SCALE), {}, ["x", "float32[]", "16]"]),
    "shape": ((torch.randn(4, 15), SCALE), {}, ["x", "[4, 15]", "16]"]),
    "dtype": ((X.long(), SCALE), {}, ["x", "int64", "float32"]),
    "second": ((X, torch.ones(5)), {}, ["scale", "float32[5]", "float32[4]"]),
    "missing": ((X,), {}, ["scale", "float32[4]"]),
    "extra": ((X, SCALE, SCALE), {}, ["x", "scale", "3 positional"]),
    "duplicate": ((X, SCALE), {"x": X}, ["x", "multiple"]),
    "unknown": ((X, SCALE), {"mask": X}, ["mask", "x", "scale"]),
    "not a tensor": (("x", SCALE), {}, ["x", "str", "float32"]),
    "none": ((None, SCALE), {}, ["x", "NoneType", "float32"]),
}


@pytest.mark.parametrize("wrong", WRONG_CALLS)
def test_C1_a_wrong_call_is_refused_by_name_before_any_engine(wrong: str) -> None:
    args, kwargs, words = WRONG_CALLS[wrong]
    engine = NullEngine(EngineSpec(name="null:0", kind="null"))
    program, _, example = captured(scaled)
    with survives(program, example, engines=["caller", engine]) as runtime:
        plan = one_region(runtime, ORT, "null:0")
        for swap in (lambda: None, lambda: runtime.swap(plan)):
            swap()
            started = engine.started
            with pytest.raises(InputError) as caught:
                runtime(*args, **kwargs)
            assert engine.started == started
            for word in words:
                assert word in str(caught.value)
            assert len(str(caught.value)) < 1000
            assert "\n" not in str(caught.value)
        assert runtime.plan == plan
        assert not runtime.faults
        runtime(X, SCALE)
        assert engine.started > started


@pytest.mark.parametrize("rewrite", COMPILED.values(), ids=COMPILED)
@pytest.mark.parametrize("index", [VOCABULARY, -1], ids=["too large", "negative"])
def test_C1_an_index_outside_the_table_is_an_error_as_in_eager(
    rewrite: Rewrite, index: int
) -> None:
    program, model, ids = captured(encoder)
    wrong = ids.clone()
    wrong[0, 0] = index
    with survives(program, ids) as runtime:
        plan = one_region(runtime, rewrite)
        runtime.swap(plan)
        agree(runtime(ids), model(ids))
        with pytest.raises(IndexError):
            runtime(wrong)
        assert runtime.settle(SOON_S)
        assert runtime.plan == plan


def test_C1_refused_calls_leave_the_coverage_a_share() -> None:
    program, _, example = captured(scaled)
    with survives(program, example) as runtime:
        runtime.swap(one_region(runtime))
        for _ in range(20):
            with pytest.raises(InputError):
                runtime(X)
        runtime(X, SCALE)
        assert runtime.coverage is not None
        assert 0.0 <= runtime.coverage <= 1.0


@pytest.mark.parametrize("rewrite", COMPILED.values(), ids=COMPILED)
def test_C2_an_empty_batch_is_answered_as_in_eager(rewrite: Rewrite) -> None:
    for make in (mlp, convnet, encoder):
        program, model, example = captured(make)
        with survives(program, example) as runtime, torch.no_grad():
            runtime.swap(one_region(runtime, rewrite))
            for given in (example[:0], example, example[:0], example[:1], example[:0]):
                agree(runtime(given), model(given))
                assert runtime.settle(SOON_S)
            assert runtime.plan == one_region(runtime, rewrite)


@pytest.mark.parametrize("rewrite", COMPILED.values(), ids=COMPILED)
def test_C2_sizes_of_zero_elsewhere_are_answered_or_refused(rewrite: Rewrite) -> None:
    program, model, x = captured(mlp)
    with survives(program, x) as runtime, torch.no_grad():
        runtime.swap(one_region(runtime, rewrite))
        with pytest.raises(InputError, match=r"x: got float32\[4, 0\]"):
            runtime(torch.randn(4, 0))
        agree(runtime(torch.randn(0, 3, 16)), model(torch.randn(0, 3, 16)))
    program, model, ids = captured(encoder)
    with survives(program, ids) as runtime, torch.no_grad():
        runtime.swap(one_region(runtime, rewrite))
        agree(runtime(ids[:, :0]), model(ids[:, :0]))


@pytest.mark.parametrize("shape", [(), (0, 3), (1, 1)], ids=str)
def test_C2_scalars_and_empty_examples(shape: tuple[int, ...]) -> None:
    model, example = Plus().eval(), torch.randn(shape)
    others = (torch.tensor(3.0), torch.randn(2, 3), torch.randn(0), torch.ones(1))
    with survives(model, example) as runtime, torch.no_grad():
        for rewrite in COMPILED.values():
            runtime.swap(one_region(runtime, rewrite))
            for given in (example, *others):
                agree(runtime(given), model(given))
            assert runtime.settle(SOON_S)


ABSURD = {
    "2^31 x 2^31": lambda: torch.empty(1).expand(2**31, 2**31),
    "2^42": lambda: torch.empty(1).expand(2**28, 2**14),
    "65 dimensions": lambda: torch.empty(1).view([1] * 65),
    "10,000 dimensions": lambda: torch.empty(1).view([1] * 10_000),
}


@pytest.mark.parametrize("absurd", ABSURD.values(), ids=ABSURD)
@pytest.mark.parametrize("serving", ["eager", "onnxruntime"])
@pytest.mark.parametrize("make", [mlp, plus], ids=["mlp", "plus"])
def test_C3_absurd_shapes_are_refused_before_any_allocation(
    absurd: Callable[[], Tensor], serving: str, make: Callable[[], Made]
) -> None:
    program, _, example = captured(make)
    with survives(program, example) as runtime:
        if serving == "onnxruntime":
            runtime.swap(one_region(runtime))
        runtime(X)
        with (
            address_space_as_it_is(),
            pytest.raises(InputError, match=r"^(x|argument 0): ") as caught,
        ):
            runtime(absurd())
        assert len(str(caught.value)) < 1000
        assert not runtime.faults


def test_C3_a_negative_size_cannot_even_be_asked_for() -> None:
    program, _, x = captured(mlp)
    with survives(program, x) as runtime:
        runtime.swap(one_region(runtime))
        with pytest.raises(RuntimeError):
            runtime(torch.empty(-1, 16))


@contextmanager
def address_space_as_it_is() -> Iterator[None]:
    before = psutil.Process().memory_info().vms
    yield
    assert psutil.Process().memory_info().vms - before < 256 * MB


ODD = {"nan": float("nan"), "inf": float("inf"), "-inf": float("-inf"), "huge": 3e38}


@pytest.mark.parametrize("odd", ODD.values(), ids=ODD)
@pytest.mark.parametrize("rewrite", COMPILED.values(), ids=COMPILED)
@pytest.mark.parametrize("make", [mlp, convnet], ids=["mlp", "convnet"])
def test_C4_nan_and_inf_pass_through_as_in_eager(
    make: Callable[[], Made], rewrite: Rewrite, odd: float
) -> None:
    program, model, example = captured(make)
    given = example.clone()
    given[0].view(-1)[0] = odd
    with survives(program, example) as runtime, torch.no_grad():
        plan = one_region(runtime, rewrite)
        runtime.swap(plan)
        for _ in range(3):
            expected = model(given)
            agree(runtime(given), expected)
            agree(runtime(given)[1:], model(example)[1:])
            assert runtime.settle(SOON_S)
        assert runtime.plan == plan, "a NaN of the model's own is no reason to roll back"


class Oddities(nn.Module):
    """Makes its own NaN and Inf."""

    def forward(self, x: Tensor) -> tuple[Tensor, ...]:
        masked = x.masked_fill(x > 0, float("-inf"))
        return x.log(), 1 / (x - x), x.clamp(-1, 1), torch.softmax(masked, -1), x.amax(-1), masked


def oddities() -> Made:
    return Oddities().eval(), X


@pytest.mark.parametrize("rewrite", COMPILED.values(), ids=COMPILED)
@pytest.mark.parametrize("odd", ODD.values(), ids=ODD)
def test_C4_nan_and_inf_made_by_the_model_are_eagers(rewrite: Rewrite, odd: float) -> None:
    program, model, x = captured(oddities)
    given = x.clone()
    given[0, 0] = odd
    with survives(program, x) as runtime:
        plan = one_region(runtime, rewrite)
        runtime.swap(plan)
        agree(runtime(given), model(given))
        assert runtime.settle(SOON_S)
        assert runtime.plan == plan


def test_C4_an_example_of_nan_can_be_captured_and_verified() -> None:
    model, x = mlp()
    with survives(model, torch.full_like(x, float("nan"))) as runtime, torch.no_grad():
        runtime.swap(one_region(runtime))
        agree(runtime(x), model(x))


def shuffled_sizes(num_calls: int, seed: int) -> Iterator[tuple[int, int]]:
    draw = random.Random(seed)
    for _ in range(num_calls):
        yield draw.choice((1, 2, 3, 5, 8, 13)), draw.choice((1, 2, 4, 7, 11, 16, 24))


def shuffle(num_calls: int, counted: Counted) -> None:
    program, model, ids = captured(encoder)
    with survives(program, ids) as runtime, torch.no_grad():
        plan = one_region(runtime, Rewrite(backend=counted.name))
        runtime.swap(plan)
        for batch, length in shuffled_sizes(42, seed=0):
            given = token_ids(batch, length)
            agree(runtime(given), model(given))
            assert runtime.settle(SOON_S)
        runs = counted.runs
        for batch, length in shuffled_sizes(num_calls, seed=1):
            given = token_ids(batch, length)
            agree(runtime(given), model(given))
        assert counted.runs - runs > num_calls / 2, "the plan, not eager, answered most of them"
        assert runtime.plan == plan


def test_C5_shuffled_sizes_are_answered_as_in_eager(counted: Counted) -> None:
    shuffle(300, counted)


@pytest.mark.soak
def test_C5_ten_thousand_shuffled_sizes_are_answered_as_in_eager(counted: Counted) -> None:
    shuffle(10_000, counted)


@pytest.mark.parametrize("rewrite", COMPILED.values(), ids=COMPILED)
def test_C5_calls_of_several_threads_do_not_mix(rewrite: Rewrite) -> None:
    program, model, ids = captured(encoder)
    sizes = list(shuffled_sizes(100, seed=2))
    inputs = [token_ids(*size) for size in sizes]
    with torch.no_grad():
        expected = [model(given) for given in inputs]
    with survives(program, ids) as runtime:
        plan = one_region(runtime, rewrite)
        runtime.swap(plan)
        with ThreadPoolExecutor(4) as pool:
            agree(list(pool.map(runtime, inputs)), expected)
            assert runtime.settle(SOON_S)
            agree(list(pool.map(runtime, inputs)), expected)
        assert runtime.plan == plan
        assert runtime.coverage is not None
        assert runtime.coverage > 0.0


MAX_BUILDS = 8
PLATEAU_BYTES = 32 * MB


def always_new(num_calls: int, counted: Counted) -> None:
    program, model, ids = captured(encoder)
    up_to = range(1, 1 + math.isqrt(num_calls))
    sizes = [(batch, length) for batch in up_to for length in up_to]
    random.Random(0).shuffle(sizes)
    with survives(program, ids) as runtime, torch.no_grad():
        plan = one_region(runtime, Rewrite(backend=counted.name))
        runtime.swap(plan)
        resident: list[int] = []
        for index, size in enumerate(sizes):
            given = token_ids(*size)
            agree(runtime(given), model(given))
            if index % (num_calls // 4) == 3:
                assert runtime.settle(SOON_S)
                resident.append(resident_bytes())
        assert counted.builds <= MAX_BUILDS, "compiles are bounded"
        assert counted.runs > num_calls / 2, "the plan, not eager, answered most of them"
        assert runtime.plan == plan
        assert resident[-1] - resident[1] < PLATEAU_BYTES, "memory has a plateau"


def resident_bytes() -> int:
    gc.collect()
    ctypes.CDLL(None).malloc_trim(0)
    return psutil.Process().memory_info().rss


def test_C6_a_new_shape_every_call_keeps_compiles_and_memory_bounded(counted: Counted) -> None:
    always_new(400, counted)


@pytest.mark.soak
def test_C6_ten_thousand_new_shapes_keep_compiles_and_memory_bounded(counted: Counted) -> None:
    always_new(10_000, counted)


class ByNumpy(nn.Module):
    """Leaves torch in the middle."""

    def __init__(self) -> None:
        super().__init__()
        self.body = nn.Sequential(nn.Linear(16, 256), nn.ReLU(), nn.Linear(256, 256))

    def forward(self, x: Tensor) -> Tensor:
        return torch.from_numpy(np.sort(self.body(x).detach().numpy()))  # here


@torch.library.custom_op("gearshift_faults::doubled", mutates_args=())
def doubled(x: Tensor) -> Tensor:
    return x * 2


class ByCustomOp(nn.Module):
    """Calls an op that says nothing about shapes."""

    def __init__(self) -> None:
        super().__init__()
        self.body = nn.Sequential(nn.Linear(16, 256), nn.ReLU(), nn.Linear(256, 256))

    def forward(self, x: Tensor) -> Tensor:
        return doubled(self.body(x))  # here


class ByItem(nn.Module):
    """Reads a number out of a tensor."""

    def __init__(self) -> None:
        super().__init__()
        self.body = nn.Sequential(nn.Linear(16, 256), nn.ReLU(), nn.Linear(256, 256))

    def forward(self, x: Tensor) -> Tensor:
        return self.body(x) * x.max().item()  # here


def marked_line(kind: type[nn.Module]) -> str:
    lines, first = inspect.getsourcelines(kind)
    place = next(index for index, line in enumerate(lines) if "# here" in line)
    return f"{inspect.getsourcefile(kind)}:{first + place}"


UNCAPTURABLE = {
    Branching: "data-dependent",
    ByNumpy: "numpy",
    ByCustomOp: "doubled",
    ByItem: "item",
}


@pytest.mark.parametrize("kind", UNCAPTURABLE, ids=lambda kind: kind.__name__)
def test_C7_what_cannot_be_captured_is_named_and_the_rest_adapts(
    kind: type[nn.Module], counted: Counted
) -> None:
    torch.manual_seed(0)
    model = kind().eval()
    check = unharmed(model)
    with survives(model, X, says="not captured") as runtime:
        check()
        (reason, *_) = runtime.program.uncaptured
        assert marked_line(kind) in reason
        assert UNCAPTURABLE[kind] in reason.lower()
        assert reason in runtime.explain()
        assert [f.name for f in runtime.program.fragments]
        assert runtime.program.fragments[0].name == "body"
        plan = one_region(runtime, Rewrite(backend=counted.name))
        runtime.swap(plan)
        runs = counted.runs
        with torch.no_grad():
            for given in (X.abs(), -X.abs(), X, torch.randn(3, 16), torch.randn(1, 16)):
                agree(runtime(given), model(given))
                assert runtime.settle(SOON_S)
        assert counted.runs > runs, "what was captured runs on the plan"
        assert runtime.plan == plan
        assert runtime.coverage is not None
        assert 0.0 < runtime.coverage < 1.0
        check()


def test_C7_a_model_of_which_nothing_can_be_captured_runs_as_before() -> None:
    class Sorted(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            return torch.from_numpy(np.sort(x.numpy()))

    model = Sorted().eval()
    with survives(model, X, says="not captured") as runtime:
        assert runtime.program.fragments == ()
        assert not runtime.plan.regions
        with pytest.raises(GearshiftError):
            runtime.swap(gearshift.Plan(regions=(gearshift.Region(ops=("sort",)),)))


def test_C7_python_around_captured_parts_sees_the_model_as_it_is_now() -> None:
    """A shell of the model serves; what the user changes on the model must reach it."""
    model, x = branching()
    with quietly(), survives(model, x) as runtime, torch.no_grad():
        plan = one_region(runtime)
        runtime.swap(plan)
        agree(runtime(X), model(X))
        model.gain = 2.0
        agree(runtime(X), model(X))
        calls = model.calls
        runtime(X)
        assert runtime.settle(SOON_S)
        assert model.calls > calls, "what forward writes on the model arrives there"


def test_C7_python_around_captured_parts_sees_training_mode() -> None:
    program, model, x = captured(branching)
    with quietly(), survives(program, x) as runtime, torch.no_grad():
        runtime.swap(one_region(runtime))
        model.train()
        seeded_alike(runtime, model, X.abs())
        seeded_alike(runtime, model, -X.abs())
        model.eval()


class AsksItsPart(nn.Module):
    """Python that reads the mode of a part it has captured."""

    def __init__(self) -> None:
        super().__init__()
        self.body = nn.Sequential(nn.Linear(16, 256), nn.ReLU(), nn.Linear(256, 256))

    def forward(self, x: Tensor) -> Tensor:
        hidden = self.body(x)
        if hidden.sum() > 0:
            hidden = hidden + 1
        return hidden * (3 if self.body.training else 1)


def test_C7_a_captured_part_tells_its_own_mode() -> None:
    torch.manual_seed(0)
    model = AsksItsPart().eval()
    with quietly(), survives(model, X) as runtime, torch.no_grad():
        runtime.swap(one_region(runtime))
        agree(runtime(X), model(X))
        model.train()
        agree(runtime(X), model(X))
        model.eval()


def seeded_alike(runtime: Callable[..., Any], model: Callable[..., Any], given: Tensor) -> None:
    """Random ops draw the same numbers in the same order."""
    torch.manual_seed(7)
    expected = model(given)
    torch.manual_seed(7)
    agree(runtime(given), expected)


@contextmanager
def quietly() -> Iterator[None]:
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="not captured")
        yield


def test_C8_a_model_in_training_mode_is_refused_aloud_and_unharmed() -> None:
    torch.manual_seed(0)
    model, x = Convnet().train(), torch.randn(2, 3, 8, 8)
    check = unharmed(model)
    with survives(model, x, says="training mode", check=False) as runtime:
        check()
        twin = copy.deepcopy(model)
        for _ in range(3):
            seeded_alike(runtime, twin, x)
        agree(model.state_dict(), twin.state_dict())


def test_C8_training_after_adapt_is_eagers_training() -> None:
    program, model, x = captured(convnet)
    with survives(program, x) as runtime, torch.no_grad():
        plan = one_region(runtime)
        runtime.swap(plan)
        agree(runtime(x), model(x))
        assert runtime.settle(SOON_S)
        model.train()
        twin = copy.deepcopy(model)
        for _ in range(3):
            seeded_alike(runtime, twin, x)
            assert runtime.settle(SOON_S)
        agree(model.state_dict(), twin.state_dict())
        model.eval()
        agree(runtime(x), model(x))
        assert runtime.settle(SOON_S)
        agree(runtime(x), model(x))
        assert runtime.plan == plan, "back in eval mode, the plan serves again"


def test_C8_a_swap_while_training_is_refused_and_harms_nothing() -> None:
    program, model, x = captured(convnet)
    with survives(program, x) as runtime:
        model.train()
        check = unharmed(model)
        with pytest.raises(GearshiftError, match="training"):
            runtime.swap(one_region(runtime))
        check()
        assert runtime.plan == eager_plan(runtime)
        model.eval()


def test_C8_checking_live_calls_does_not_train_the_model() -> None:
    program, model, x = captured(convnet)
    with survives(program, x) as runtime:
        for _ in range(5):
            runtime.swap(one_region(runtime))
            runtime(x)
            model.train()
            check = unharmed(model)
            assert runtime.settle(SOON_S)
            check()
            model.eval()


class Tied(nn.Module):
    """One weight in two places."""

    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Embedding(VOCABULARY, 16)
        self.head = nn.Linear(16, VOCABULARY, bias=False)
        self.head.weight = self.embed.weight

    def forward(self, ids: Tensor) -> Tensor:
        return self.head(torch.tanh(self.embed(ids)))


def tied() -> Made:
    torch.manual_seed(0)
    return Tied().eval(), token_ids(2, 7)


@pytest.mark.parametrize("rewrite", COMPILED.values(), ids=COMPILED)
def test_C8_shared_weights(rewrite: Rewrite) -> None:
    program, model, ids = captured(tied)
    with survives(program, ids) as runtime, torch.no_grad():
        plan = by_module(runtime, rewrite)
        runtime.swap(plan)
        agree(runtime(ids), model(ids))
        assert runtime.settle(SOON_S)
        assert runtime.memory.weight_bytes == VOCABULARY * 16 * 4
        model.embed.weight.mul_(1.5)
        agree(runtime(ids), model(ids))
        assert runtime.settle(SOON_S)
        agree(runtime(ids), model(ids))
        assert runtime.plan == plan


class InPlace(nn.Module):
    """Changes only what it made itself."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(16, 4)
        self.act = nn.ReLU(inplace=True)

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        hidden = self.act(self.linear(x))
        hidden[:, 0] += 1
        row = hidden[0]
        row.mul_(3)
        return hidden, hidden.t()


class ReturnsChangedInput(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return x.add_(1)


class ChangesViewOfInput(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(16, 4)

    def forward(self, x: Tensor) -> Tensor:
        first = x[:, 0]
        first.zero_()
        return self.linear(x)


@pytest.mark.parametrize(
    "kind",
    [InPlace, ReturnsChangedInput, ChangesViewOfInput],
    ids=lambda kind: kind.__name__,
)
def test_C8_in_place_ops(kind: type[nn.Module]) -> None:
    """Answers and the input afterwards are eager's, whether captured or refused with a reason."""
    torch.manual_seed(0)
    model = kind().eval()
    kept = X.clone()
    with quietly(), survives(model, X.clone(), check=False) as runtime, torch.no_grad():
        swapped = swap_if_captured(runtime)
        assert swapped or runtime.program.uncaptured
        for _ in range(4):
            mine, theirs = kept.clone(), kept.clone()
            agree(runtime(mine), model(theirs))
            agree(mine, theirs)
            assert runtime.settle(SOON_S)


def swap_if_captured(runtime: Runtime) -> bool:
    if not runtime.program.fragments:
        return False
    plan = one_region(runtime)
    runtime.swap(plan)
    return runtime.plan == plan


class CountsCalls(nn.Module):
    """Keeps a buffer up to date in eval mode, too."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(16, 4)
        self.register_buffer("calls", torch.zeros(()))

    def forward(self, x: Tensor) -> Tensor:
        self.calls.add_(1)
        return self.linear(x) + self.calls


class KeepsLast(nn.Module):
    """Puts another tensor in its buffer's place."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(16, 4)
        self.register_buffer("last", torch.zeros(4))

    def forward(self, x: Tensor) -> Tensor:
        result = self.linear(x) + self.last
        self.last = result.mean(0)
        return result


@pytest.mark.parametrize("kind", [CountsCalls, KeepsLast], ids=lambda kind: kind.__name__)
def test_C8_buffers_updated_in_forward(kind: type[nn.Module]) -> None:
    torch.manual_seed(0)
    model = kind().eval()
    check = unharmed(model)
    with quietly(), survives(model, X, check=False) as runtime, torch.no_grad():
        check()
        assert swap_if_captured(runtime) or runtime.program.uncaptured
        twin = copy.deepcopy(model)
        for _ in range(4):
            agree(runtime(X), twin(X))
            assert runtime.settle(SOON_S)
        agree(model.state_dict(), twin.state_dict())


def test_C8_hooks_there_before_are_refused_aloud_and_still_called() -> None:
    model, x = mlp()
    handle = model.second.register_forward_hook(lambda module, args, result: result * 2)
    with survives(model, x, says="hooks") as runtime, torch.no_grad():
        runtime.swap(one_region(runtime))
        agree(runtime(x), model(x))
        handle.remove()
        agree(runtime(x), model(x))


@pytest.mark.parametrize("pre", [False, True], ids=["hook", "pre-hook"])
def test_C8_a_hook_that_comes_later_is_called_from_the_next_call_on(pre: bool) -> None:
    program, model, x = captured(mlp)
    seen: list[nn.Module] = []
    with survives(program, x) as runtime, torch.no_grad():
        runtime.swap(one_region(runtime))
        agree(runtime(x), model(x))
        assert runtime.settle(SOON_S)
        if pre:
            handle = model.second.register_forward_pre_hook(lambda m, args: seen.append(m))
        else:
            handle = model.second.register_forward_hook(lambda m, args, result: result * 2)
        try:
            agree(runtime(x), model(x))
        finally:
            handle.remove()
        assert not pre or len(seen) == 2, "once by the runtime, once by the model"
        agree(runtime(x), model(x))


NON_CONTIGUOUS: dict[str, Callable[[Tensor], Tensor]] = {
    "transposed": lambda x: x.transpose(-1, -2).contiguous().transpose(-1, -2),
    "every other": lambda x: x.repeat_interleave(2, 0)[::2],
    "expanded": lambda x: x[:1].expand_as(x),
    "flipped and sliced": lambda x: torch.cat([x, x], -1)[..., : x.shape[-1]],
    "with an offset": lambda x: torch.cat([x, x])[x.shape[0] :],
}


@pytest.mark.parametrize("rewrite", COMPILED.values(), ids=COMPILED)
def test_C8_inputs_that_are_not_contiguous(rewrite: Rewrite) -> None:
    for make in (mlp, convnet, encoder):
        program, model, example = captured(make)
        with survives(program, example) as runtime, torch.no_grad():
            runtime.swap(one_region(runtime, rewrite))
            for change in NON_CONTIGUOUS.values():
                given = change(example)
                agree(runtime(given), model(given))
            if make is convnet:
                given = example.to(memory_format=torch.channels_last)
                agree(runtime(given), model(given))
            assert runtime.plan == one_region(runtime, rewrite)


def channels_last() -> Made:
    model, x = convnet()
    return model.to(memory_format=torch.channels_last), x


@pytest.mark.parametrize("rewrite", COMPILED.values(), ids=COMPILED)
def test_C8_weights_that_are_not_contiguous(rewrite: Rewrite) -> None:
    program, model, x = captured(channels_last)
    with survives(program, x) as runtime, torch.no_grad():
        plan = one_region(runtime, rewrite)
        runtime.swap(plan)
        agree(runtime(x), model(x))
        assert runtime.plan == plan


class GivesViews(nn.Module):
    """Results that share the input's memory."""

    def forward(self, x: Tensor) -> tuple[Tensor, ...]:
        return x.view(-1), x[:, :2], x.t(), x[0], x


def gives_views() -> Made:
    return GivesViews().eval(), X


@pytest.mark.parametrize("rewrite", COMPILED.values(), ids=COMPILED)
def test_C8_results_that_are_views_of_the_input(rewrite: Rewrite) -> None:
    program, model, x = captured(gives_views)
    with survives(program, x) as runtime:
        runtime.swap(one_region(runtime, rewrite))
        for _ in range(3):
            given = torch.randn(4, 16)
            kept = given.clone()
            results = runtime(given)
            agree(results, model(given))
            assert torch.equal(given, kept)
            assert results[-1] is given
            assert runtime.settle(SOON_S)


def test_C8_inputs_that_are_views_of_each_other() -> None:
    program, model, example = captured(scaled)
    with survives(program, example) as runtime, torch.no_grad():
        plan = one_region(runtime)
        runtime.swap(plan)
        for _ in range(4):
            base = torch.randn(4, 16)
            agree(runtime(base, base[0, :4]), model(base, base[0, :4]))
            assert runtime.settle(SOON_S)
        assert runtime.plan == plan


class AlwaysDrops(nn.Module):
    """Random whatever the mode."""

    def __init__(self) -> None:
        super().__init__()
        self.body = nn.Sequential(nn.Linear(16, 256), nn.ReLU(), nn.Linear(256, 256))

    def forward(self, x: Tensor) -> Tensor:
        return F.dropout(self.body(x), 0.5, training=True) + torch.rand(256)


def test_C8_random_ops_are_refused_with_their_line_and_stay_eagers() -> None:
    torch.manual_seed(0)
    model = AlwaysDrops().eval()
    with survives(model, X, says="is random", check=False) as runtime, torch.no_grad():
        plan = one_region(runtime)
        runtime.swap(plan)
        for _ in range(3):
            seeded_alike(runtime, model, X)
            assert runtime.settle(SOON_S)
        assert runtime.plan == plan, "two draws that differ are no reason to roll back"


class GivesInputsAndWeights(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(16, 4)
        self.register_buffer("offset", torch.ones(4))

    def forward(self, x: Tensor) -> tuple[Any, ...]:
        result = self.linear(x) + self.offset
        made = torch.tensor([1.0, 2.0])
        return result, x, self.linear.weight, self.offset, made, self.offset * 2, x.shape[0], None


def gives_inputs_and_weights() -> Made:
    torch.manual_seed(0)
    return GivesInputsAndWeights().eval(), X


@pytest.mark.parametrize("rewrite", [*COMPILED.values(), Rewrite()], ids=[*COMPILED, "eager"])
def test_C8_results_that_are_inputs_weights_or_constants(rewrite: Rewrite) -> None:
    program, model, x = captured(gives_inputs_and_weights)
    with survives(program, x) as runtime, torch.no_grad():
        plan = by_module(runtime, rewrite)
        assert plan != eager_plan(runtime)
        runtime.swap(plan)
        for batch in (4, 4, 3, 3, 3, 3):
            given = torch.randn(batch, 16)
            results = runtime(given)
            agree(results, model(given))
            assert results[1] is given
            assert results[2] is model.linear.weight
            results[4].add_(1)
            results[5].add_(1)
            agree(runtime(given), model(given))
            assert runtime.settle(SOON_S)
        assert runtime.plan == plan


@pytest.mark.parametrize("wrap", [Tensor.requires_grad_, nn.Parameter], ids=["tensor", "parameter"])
def test_C8_an_input_that_needs_gradients_gets_them(wrap: Callable[[Tensor], Tensor]) -> None:
    program, model, x = captured(mlp)
    with survives(program, x) as runtime:
        runtime.swap(one_region(runtime))
        for _ in range(4):
            mine, theirs = wrap(x.clone()), wrap(x.clone())
            runtime(mine).sum().backward()
            model(theirs).sum().backward()
            agree(mine.grad, theirs.grad)
            assert runtime.settle(SOON_S)


def optimiser_step(model: nn.Module, x: Tensor) -> None:
    with torch.enable_grad():
        model(x).square().sum().backward()
    torch.optim.SGD(model.parameters(), lr=0.5).step()
    model.zero_grad()


def other_state(model: nn.Module) -> dict[str, Tensor]:
    return {
        name: tensor * 1.5 if tensor.is_floating_point() else tensor.clone()
        for name, tensor in model.state_dict().items()
    }


def load(model: nn.Module, x: Tensor) -> None:
    model.load_state_dict(other_state(model))


def load_by_assignment(model: nn.Module, x: Tensor) -> None:
    model.load_state_dict(other_state(model), assign=True)


def new_data(model: nn.Module, x: Tensor) -> None:
    for parameter in model.parameters():
        parameter.data = parameter.data * 1.5


def buffer_in_place(model: nn.Module, x: Tensor) -> None:
    model.norm.running_var.mul_(1.5)


def buffer_replaced(model: nn.Module, x: Tensor) -> None:
    model.norm.running_var = model.norm.running_var * 1.5


def parameter_in_place(model: nn.Module, x: Tensor) -> None:
    model.head.weight.mul_(1.5)


def module_replaced(model: nn.Module, x: Tensor) -> None:
    model.head = nn.Linear(8, 4).eval()


CHANGES = [
    optimiser_step,
    load,
    load_by_assignment,
    new_data,
    buffer_in_place,
    buffer_replaced,
    parameter_in_place,
]


@pytest.mark.parametrize("change", CHANGES, ids=lambda change: change.__name__)
@pytest.mark.parametrize("settled", [True, False], ids=["settled", "at once"])
def test_C10_new_weights_answer_at_once_and_the_plan_follows(
    change: Callable[..., None], settled: bool, counted: Counted
) -> None:
    """Unless settled, a check of the call before may still be waiting when the weights change."""
    program, model, x = captured(convnet)
    with survives(program, x) as runtime, torch.no_grad():
        plan = one_region(runtime, Rewrite(backend=counted.name))
        runtime.swap(plan)
        for _ in range(2):
            before = runtime(x)
            if settled:
                assert runtime.settle(SOON_S)
            change(model, x)
            answer = runtime(x)
            assert not agrees(answer, before)
            agree(answer, model(x))
            assert runtime.settle(SOON_S)
            assert runtime.plan == plan, runtime.explain()
            runs = counted.runs
            agree(runtime(x), model(x))
            assert counted.runs == runs + 1, "the plan serves again"


@pytest.mark.parametrize("change", [load, new_data], ids=lambda change: change.__name__)
def test_C10_new_weights_reach_other_shapes_and_parts(
    change: Callable[..., None], counted: Counted
) -> None:
    """The build for any shape, and fragments of a model not captured whole, follow too."""
    for make in (mlp, branching):
        program, model, x = captured(make)
        with quietly(), survives(program, x) as runtime, torch.no_grad():
            plan = one_region(runtime, Rewrite(backend=counted.name))
            runtime.swap(plan)
            for batch in (4, 3, 3, 5, 5):
                runtime(torch.randn(batch, 16))
                assert runtime.settle(SOON_S)
            change(model, x)
            for batch in (3, 4, 5, 3, 4, 5):
                given = torch.randn(batch, 16)
                agree(runtime(given), model(given))
                agree(runtime(-given.abs()), model(-given.abs()))
                assert runtime.settle(SOON_S)
            assert runtime.plan == plan


def test_C10_a_module_put_in_anothers_place_answers_at_once() -> None:
    model, x = convnet()
    with survives(model, x) as runtime, torch.no_grad():
        runtime.swap(one_region(runtime))
        agree(runtime(x), model(x))
        assert runtime.settle(SOON_S)
        module_replaced(model, x)
        agree(runtime(x), model(x))
        assert runtime.settle(SOON_S)
        agree(runtime(x), model(x))


class PlainTensors(nn.Module):
    """Tensors torch does not count among the weights."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(16, 4)
        self.scale = torch.tensor(2.0)
        self.register_buffer("offset", torch.ones(4), persistent=False)

    def forward(self, x: Tensor) -> Tensor:
        return self.linear(x) * self.scale + self.offset


PLAIN_CHANGES: dict[str, Callable[[Any], Any]] = {
    "attribute in place": lambda model: model.scale.mul_(2),
    "attribute replaced": lambda model: setattr(model, "scale", torch.tensor(5.0)),
    "unsaved buffer in place": lambda model: model.offset.mul_(2),
    "unsaved buffer replaced": lambda model: setattr(model, "offset", torch.full((4,), 5.0)),
}


def plain_tensors() -> Made:
    torch.manual_seed(0)
    return PlainTensors().eval(), X


@pytest.mark.parametrize("change", PLAIN_CHANGES.values(), ids=PLAIN_CHANGES)
def test_C10_tensors_outside_the_state_dict_answer_at_once(
    change: Callable[[Any], Any], counted: Counted
) -> None:
    model, x = plain_tensors()
    with survives(model, x) as runtime, torch.no_grad():
        plan = one_region(runtime, Rewrite(backend=counted.name))
        runtime.swap(plan)
        agree(runtime(X), model(X))
        assert runtime.settle(SOON_S)
        change(model)
        agree(runtime(X), model(X))
        assert runtime.settle(SOON_S)
        agree(runtime(X), model(X))
        assert runtime.plan == plan


def test_C10_weights_of_another_dtype_answer_and_the_old_plan_does_not() -> None:
    model, x = mlp()
    with survives(model, x) as runtime, torch.no_grad():
        plan = one_region(runtime)
        runtime.swap(plan)
        agree(runtime(x), model(x))
        model.to(torch.float64)
        for _ in range(3):
            agree(runtime(x.double()), model(x.double()))
            with pytest.raises((RuntimeError, ValueError), match=r"dtype|float"):
                runtime(x)
            assert runtime.settle(SOON_S)
        said = runtime.decisions[-1].outcome
        assert runtime.plan == plan or ("refused" in said and "float64" in said)
        model.to(torch.float32)
        agree(runtime(x), model(x))
        runtime.swap(plan)
        agree(runtime(x), model(x))
        assert runtime.plan == plan


def test_C10_a_change_behind_torchs_back_is_caught_by_live_sampling() -> None:
    """`p.data.mul_()` leaves no trace a call could look at; within seconds it must be seen."""
    program, model, x = captured(convnet)
    with survives(program, x) as runtime, torch.no_grad():
        runtime.swap(one_region(runtime))
        runtime(x)
        assert runtime.settle(SOON_S)
        model.head.weight.data.mul_(3)
        assert seconds_until(lambda: agrees(runtime(x), model(x))) < 5.0
        assert runtime.settle(SOON_S)
        agree(runtime(x), model(x))


def seconds_until(done: Callable[[], bool], limit_s: float = 20.0) -> float:
    start_s = time.monotonic()
    while not done():
        assert time.monotonic() - start_s < limit_s
        time.sleep(0.01)
    return time.monotonic() - start_s


def test_C10_weights_that_change_all_the_time_are_never_the_old_ones() -> None:
    program, model, x = captured(mlp)
    with survives(program, x) as runtime, torch.no_grad():
        plan = one_region(runtime)
        runtime.swap(plan)
        for _ in range(200):
            model.last.weight.mul_(1.01)
            agree(runtime(x), model(x))
        assert runtime.settle(SOON_S)
        agree(runtime(x), model(x))
        assert runtime.settle(SOON_S)
        assert runtime.plan == plan
