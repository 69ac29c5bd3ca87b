"""Every plan gives eager's outputs: random small models, random legal plans, random inputs.
Knows the public surface and the moves. Inductor is left out, for it takes seconds a region.
"""

import logging
import os
import threading
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from random import Random
from typing import Any

import pytest
import torch
from hypothesis import HealthCheck, Phase, given, note, settings
from hypothesis import strategies as st
from torch import Tensor, nn
from torch.nn import functional
from torch.utils import _pytree as pytree

import gearshift
from gearshift.plan import Plan, Space, dumps, legal_moves
from gearshift.plan.plan import whole

TOLERANCE = 1e-4
ENGINES = [f"cpu:{core}" for core in sorted(os.sched_getaffinity(0))[:2]]
BATCHES = [(1, 4), (2, 5), (3, 7), (2, 1)]
"""Rows of the example, and rows of other calls."""
NUM_PLANS = 5
MAX_DEGREE = 2
"""How many inputs may be multiplied with each other: rounding grows with every one."""
MAX_NUMBERS = 256
"""In a value, per row."""

Shape = tuple[int, ...]
"""The first number is how often the batch goes into the first dimension."""


@dataclass(frozen=True)
class Drawn:
    """A value of a model to be, and how many inputs are multiplied in it at most."""

    shape: Shape
    degree: int = 1


@dataclass(frozen=True)
class Step:
    """One op: its kind, the values it reads by number, a dimension or size, its weights if any."""

    kind: str
    reads: tuple[int, ...]
    number: int = 0
    weights: str = ""


@dataclass(frozen=True)
class Recipe:
    inputs: tuple[Shape, ...]
    steps: tuple[Step, ...]
    outputs: tuple[int, ...]
    named: bool
    """Whether the outputs come in a dictionary."""


Option = tuple[Step, tuple[Drawn, ...]]


def options(values: list[Drawn]) -> list[Option]:
    """Every step that can follow, with the values it makes."""
    found = [option for index in range(len(values)) for option in _of_one(index, values[index])]
    for i, first in enumerate(values):
        for j, second in enumerate(values):
            found += _of_two((i, j), first, second)
    return [(step, made) for step, made in found if all(_is_small(m.shape) for m in made)]


def _is_small(shape: Shape) -> bool:
    numbers = 1
    for size in shape:
        numbers *= size
    return numbers <= MAX_NUMBERS


def _of_one(index: int, value: Drawn) -> Iterator[Option]:
    shape, last = value.shape, value.shape[-1]
    reads = (index,)
    for kind in ("relu", "gelu"):
        yield Step(kind, reads), (value,)
    for size in (3, 4, 8):
        for twin in ("a", "b"):  # the same letter again: two steps share their weights
            weights = f"linear {last} {size} {twin}"
            yield (
                Step("linear", reads, weights=weights),
                (replace(value, shape=(*shape[:-1], size)),),
            )
    for dim in range(1, len(shape)):
        yield Step("softmax", reads, dim), (Drawn(shape),)
        if len(shape) > 2:
            yield Step("mean", reads, dim), (replace(value, shape=shape[:dim] + shape[dim + 1 :]),)
    if last >= 3:
        yield Step("layer_norm", reads, weights=f"norm {last} a"), (Drawn(shape),)
    if last % 2 == 0:
        half = replace(value, shape=(*shape[:-1], last // 2))
        yield Step("chunk", reads), (half, half)
    if len(shape) == 3:
        rows, length, width = shape
        yield Step("transpose", reads), (replace(value, shape=(rows, width, length)),)
        yield Step("flatten", reads), (replace(value, shape=(rows, length * width)),)
        yield Step("rows", reads), (replace(value, shape=(rows * length, width)),)
    elif last % 2 == 0:
        yield Step("fold", reads), (replace(value, shape=(shape[0], 2, last // 2)),)


def _of_two(reads: tuple[int, int], first: Drawn, second: Drawn) -> Iterator[Option]:
    one, two = first.shape, second.shape
    degree = max(first.degree, second.degree)
    product = first.degree + second.degree
    if one == two:
        yield Step("add", reads), (Drawn(one, degree),)
        if product <= MAX_DEGREE:
            yield Step("mul", reads), (Drawn(one, product),)
    for dim in range(min(len(one), len(two))):
        if one[:dim] + one[dim + 1 :] == two[:dim] + two[dim + 1 :]:
            joined = (*one[:dim], one[dim] + two[dim], *one[dim + 1 :])
            yield Step("cat", reads, dim), (Drawn(joined, degree),)
    fit = len(one) == len(two) == 3 and one[0] == two[0] and one[2] == two[1]
    if fit and product <= MAX_DEGREE:
        yield Step("matmul", reads), (Drawn((*one[:2], two[2]), product),)


def draw_recipe(random: Random) -> Recipe:
    inputs = tuple(
        (1, *random.choices((2, 3, 4), k=random.choice((1, 2))))
        for _ in range(random.randint(1, 3))
    )
    values = [Drawn(shape) for shape in inputs]
    steps: list[Step] = []
    for _ in range(random.randint(3, 10)):
        step, made = pick(random, options(values), lambda option: option[0].kind)
        steps.append(step)
        values += made
    read = {index for step in steps for index in step.reads}
    outputs = [index for index in range(len(inputs), len(values)) if index not in read]
    outputs += random.sample(range(len(values)), random.randint(0, 2))
    random.shuffle(outputs)
    return Recipe(inputs, tuple(steps), tuple(outputs), random.random() < 0.3)


def pick(random: Random, choice: Iterable[Any], kind: Callable[[Any], str]) -> Any:
    """Each kind is as likely as the others, however many there are of it."""
    by_kind: dict[str, list[Any]] = {}
    for one in choice:
        by_kind.setdefault(kind(one), []).append(one)
    return random.choice(by_kind[random.choice(sorted(by_kind))])


class Model(nn.Module):
    """A recipe carried out."""

    def __init__(self, recipe: Recipe) -> None:
        super().__init__()
        self.recipe = recipe
        self.barred: set[int] = set()
        self.calls: Counter[int] = Counter()
        names = dict.fromkeys(step.weights for step in recipe.steps if step.weights)
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(0)
            self.layers = nn.ModuleDict({name: _layer(name) for name in names})

    def forward(self, *inputs: Tensor) -> Any:
        me = threading.get_ident()
        assert me not in self.barred, "the model itself was called"
        self.calls[me] += 1
        values = list(inputs)
        for step in self.recipe.steps:
            values += self._run(step, [values[index] for index in step.reads])
        outputs = tuple(values[index] for index in self.recipe.outputs)
        if self.recipe.named:
            return {"first": outputs[0], "rest": list(outputs[1:])}
        return outputs if len(outputs) > 1 else outputs[0]

    def _run(self, step: Step, reads: list[Tensor]) -> tuple[Tensor, ...]:
        x = reads[0]
        match step.kind:
            case "relu" | "gelu":
                return (getattr(functional, step.kind)(x),)
            case "linear" | "layer_norm":
                return (self.layers[step.weights](x),)
            case "softmax" | "mean":
                return (getattr(x, step.kind)(step.number),)
            case "chunk":
                return x.chunk(2, -1)
            case "transpose":
                return (x.transpose(1, 2),)
            case "flatten":
                return (x.reshape(x.shape[0], -1),)
            case "rows":
                return (x.reshape(-1, x.shape[2]),)
            case "fold":
                return (x.reshape(x.shape[0], 2, x.shape[1] // 2),)
            case "cat":
                return (torch.cat(reads, step.number),)
            case "add" | "mul" | "matmul":
                return (getattr(torch, step.kind)(*reads),)
        raise AssertionError(step)

    @contextmanager
    def barred_here(self) -> Iterator[None]:
        """While this lasts, a call of this thread answered by the model itself raises."""
        self.barred.add(threading.get_ident())
        try:
            yield
        finally:
            self.barred.clear()


def _layer(name: str) -> nn.Module:
    kind, *sizes = name.split()[:-1]
    if kind == "linear":
        return nn.Linear(int(sizes[0]), int(sizes[1]))
    norm = nn.LayerNorm(int(sizes[0]))
    nn.init.uniform_(norm.weight, 0.5, 1.5)
    nn.init.uniform_(norm.bias, 0.5, 1.5)
    return norm


def inputs_for(recipe: Recipe, num_rows: int, seed: int) -> tuple[Tensor, ...]:
    generator = torch.Generator().manual_seed(seed)
    shapes = [(num_rows, *shape[1:]) for shape in recipe.inputs]
    return tuple(torch.randn(shape, generator=generator) for shape in shapes)


def assert_equal(expected: Any, got: Any) -> None:
    wants, spec = pytree.tree_flatten(expected)
    haves, have_spec = pytree.tree_flatten(got)
    assert have_spec == spec
    for want, have in zip(wants, haves, strict=True):
        assert have.shape == want.shape
        assert have.dtype == want.dtype
        assert not have.requires_grad
        limit = TOLERANCE * want.abs().max().item()
        assert (want - have).abs().max().item() <= limit


@contextmanager
def no_bugs_logged() -> Iterator[None]:
    """An unforeseen error in the background is only logged; here it counts."""
    records: list[logging.LogRecord] = []
    handler = logging.Handler(logging.ERROR)
    handler.emit = records.append  # type: ignore[method-assign]
    logger = logging.getLogger("gearshift")
    logger.addHandler(handler)
    try:
        yield
    finally:
        logger.removeHandler(handler)
    assert not records, [(record.getMessage(), record.exc_info) for record in records]


def quick(space: Space) -> Space:
    """Without the backend that takes long, and without threads that spin."""
    kept = [r for r in space.rewrites if r.backend != "inductor" and not r.spin]
    return replace(space, rewrites=tuple(kept))


calm = settings(
    max_examples=10,
    deadline=None,
    derandomize=True,
    phases=[Phase.generate],  # an example takes a second: no time to look for a smaller one
    suppress_health_check=[HealthCheck.too_slow],
)


def test_every_plan_gives_eagers_outputs() -> None:
    compare_all(calm)


@pytest.mark.soak
def test_every_plan_gives_eagers_outputs_many_times() -> None:
    compare_all(settings(calm, max_examples=200))


def compare_all(how: settings) -> None:
    by_plan: list[bool] = []

    @how
    @given(st.randoms(use_true_random=True))
    def compare(random: Random) -> None:
        model = Model(draw_recipe(random)).eval()
        num_rows, other_rows = random.choice(BATCHES)
        example = inputs_for(model.recipe, num_rows, seed=0)
        note(f"{model.recipe}, {num_rows} and {other_rows} rows")
        with no_bugs_logged(), gearshift.adapt(model, example, engines=ENGINES) as runtime:
            for plan in draw_plans(random, quick(runtime.space)):
                note(dumps(plan))
                runtime.swap(plan)
                check_example_batch(runtime, model, num_rows)
                by_plan.append(check_other_batch(runtime, model, other_rows))
                assert runtime.settle(60)
                assert runtime.plan == plan
                assert not runtime.faults

    compare()
    assert sum(by_plan) > len(by_plan) / 2, "at other batch sizes the plan hardly ever serves"


def draw_plans(random: Random, space: Space) -> Iterator[Plan]:
    """Some moves from the whole, then some more from there, and so on."""
    plan = whole(space.graph)
    for _ in range(NUM_PLANS):
        for _ in range(random.randint(2, 6)):
            move = pick(random, legal_moves(plan, space), lambda move: type(move).__name__)
            plan = move.apply(plan, space.graph)
        if plan != whole(space.graph):  # that one is the model itself
            yield plan


@torch.no_grad()
def check_example_batch(runtime: gearshift.Runtime, model: Model, num_rows: int) -> None:
    """The plan answers without the model, and later calls do not change what it gave."""
    calls = [inputs_for(model.recipe, num_rows, seed) for seed in (1, 2)]
    wants = [model(*inputs) for inputs in calls]
    with model.barred_here():
        answers = [runtime(*inputs) for inputs in calls]
    for want, answer in zip(wants, answers, strict=True):
        assert_equal(want, answer)


@torch.no_grad()
def check_other_batch(runtime: gearshift.Runtime, model: Model, num_rows: int) -> bool:
    """Right from the first call on; True if the plan serves this size itself once all is built."""
    inputs = inputs_for(model.recipe, num_rows, seed=3)
    want = model(*inputs)
    for _ in range(4):
        assert_equal(want, runtime(*inputs))
        assert runtime.settle(60)
    me = threading.get_ident()
    num_calls = model.calls[me]
    assert_equal(want, runtime(*inputs))
    return model.calls[me] == num_calls
