"""Every plan gives eager's outputs: random small models, random legal plans, random inputs.
Knows the public surface and the moves. Inductor is left out, for it takes seconds a region.
"""

import logging
import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

import torch
from hypothesis import HealthCheck, given, note, settings
from hypothesis import strategies as st
from torch import Tensor, nn
from torch.nn import functional
from torch.utils import _pytree as pytree

import gearshift
from gearshift.plan import Plan, Space, legal_moves, render
from gearshift.plan.plan import whole

TOLERANCE = 1e-4
ENGINES = [f"cpu:{core}" for core in sorted(os.sched_getaffinity(0))[:2]]
NUM_PLANS = 3
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
            yield Step("linear", reads, weights=weights), (replace(value, shape=(*shape[:-1], size)),)
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
    if len(one) == len(two) == 3 and one[0] == two[0] and one[2] == two[1]:
        if product <= MAX_DEGREE:
            yield Step("matmul", reads), (Drawn((*one[:2], two[2]), product),)


@st.composite
def recipes(draw: st.DrawFn) -> Recipe:
    size = st.sampled_from((2, 3, 4))
    shape = st.one_of(st.tuples(st.just(1), size), st.tuples(st.just(1), size, size))
    inputs = tuple(draw(st.lists(shape, min_size=1, max_size=3)))
    values = [Drawn(shape) for shape in inputs]
    steps: list[Step] = []
    for _ in range(draw(st.integers(3, 10))):
        here = options(values)
        kind = draw(st.sampled_from(sorted({step.kind for step, _ in here})))
        step, made = draw(st.sampled_from([option for option in here if option[0].kind == kind]))
        steps.append(step)
        values += made
    read = {index for step in steps for index in step.reads}
    unread = [index for index in range(len(inputs), len(values)) if index not in read]
    more = draw(st.lists(st.sampled_from(range(len(values))), max_size=2))
    outputs = tuple(draw(st.permutations([*unread, *more])))
    return Recipe(inputs, tuple(steps), outputs, draw(st.booleans()))


class Model(nn.Module):
    """A recipe carried out."""

    def __init__(self, recipe: Recipe) -> None:
        super().__init__()
        self.recipe = recipe
        self.barred: set[int] = set()
        torch.manual_seed(0)
        names = dict.fromkeys(step.weights for step in recipe.steps if step.weights)
        self.layers = nn.ModuleDict({name: _layer(name) for name in names})

    def forward(self, *inputs: Tensor) -> Any:
        assert threading.get_ident() not in self.barred, "the model itself was called"
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
    def not_called_here(self) -> Iterator[None]:
        """While this lasts, a call answered by the model instead of the plan raises."""
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
        assert have.shape == want.shape and have.dtype == want.dtype
        assert not have.requires_grad
        limit = TOLERANCE * want.abs().max().item()
        assert (want - have).abs().max().item() <= limit


@contextmanager
def no_complaints() -> Iterator[None]:
    """What fails in the background is only logged; here it is an error."""
    records: list[logging.LogRecord] = []
    handler = logging.Handler(logging.WARNING)
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


def moved(plan: Plan, space: Space, data: st.DataObject) -> Plan:
    for _ in range(data.draw(st.integers(1, 5), "moves")):
        moves = list(legal_moves(plan, space))
        kind = data.draw(st.sampled_from(sorted({type(move).__name__ for move in moves})))
        choice = [move for move in moves if type(move).__name__ == kind]
        plan = data.draw(st.sampled_from(choice)).apply(plan, space.graph)
    return plan


@settings(
    max_examples=25,
    deadline=None,
    derandomize=True,
    suppress_health_check=[HealthCheck.too_slow],
)
@given(
    recipe=recipes(),
    num_rows=st.sampled_from((1, 2, 3)),
    other_rows=st.sampled_from((4, 5, 7)),
    data=st.data(),
)
def test_every_plan_gives_eagers_outputs(
    recipe: Recipe, num_rows: int, other_rows: int, data: st.DataObject
) -> None:
    model = Model(recipe).eval()
    example = inputs_for(recipe, num_rows, seed=0)
    with no_complaints(), gearshift.adapt(model, example, engines=ENGINES) as runtime:
        space = quick(runtime.space)
        plan = eager = whole(space.graph)
        for seed in range(1, NUM_PLANS + 1):
            plan = moved(plan, space, data)
            if plan == eager:
                continue
            note(render(plan, space.graph))
            runtime.swap(plan)
            answers = [serve(runtime, model, inputs_for(recipe, num_rows, seed))]
            others = inputs_for(recipe, other_rows, seed)
            runtime(*others)
            assert runtime.settle(60)
            answers += [serve(runtime, model, others) for _ in range(4)]
            for expected, got in answers:
                assert_equal(expected, got)
            assert runtime.settle(60)
            assert runtime.plan == plan and not runtime.faults


@torch.no_grad()
def serve(runtime: Any, model: Model, inputs: tuple[Tensor, ...]) -> tuple[Any, Any]:
    """What the model says, and what the plan says without asking the model."""
    expected = model(*inputs)
    with model.not_called_here():
        return expected, runtime(*inputs)
