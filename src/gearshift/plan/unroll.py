"""The knob `unroll`: how many steps of a sequence each layer of a recurrent region takes at a time.

Must not know how a step is computed; which kernels there are comes in the Space.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, NamedTuple

from gearshift.ir.graph import Graph
from gearshift.ir.recurrent import Stack
from gearshift.ir.topology import CALLER, members, team
from gearshift.plan.split import ROWS, Split, single_cores

if TYPE_CHECKING:
    from gearshift.plan.legal import Space
    from gearshift.plan.plan import Plan, Region

FACTORS = (2, 4, 8, 16, 32, 64, 128)
MOST = 1 << 20
"""No more steps are taken at a time."""
COMPILED = "inductor"
"""The kernel that takes longer to build for more steps."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Steps:
    """Of one layer, in whatever directions it goes."""

    then: int = 0
    """So many steps at a time; 1: rolled, step by step; 0: all that are left at once."""
    first: int = 0
    """So many at once at the beginning; 0: as all others."""
    kernel: str = ""
    """By which they are computed; empty: by whichever measures best here."""

    def __str__(self) -> str:
        usual = {0: "all at once", 1: "rolled"}.get(self.then, f"by {self.then}")
        first = f"{self.first}, then " if self.first else ""
        return f"{first}{usual}{f' ({self.kernel})' if self.kernel else ''}"


ROLLED, AT_ONCE = Steps(then=1), Steps()


@dataclass(frozen=True, slots=True, kw_only=True)
class Unroll:
    """On one engine, layers run one after the other; over a team each engine has some of the
    layers or directions, and chunks flow from one to the next. With a split by rows, each engine
    takes all layers for some rows."""

    layers: tuple[Steps, ...]

    def __str__(self) -> str:
        alike = len(set(self.layers)) == 1
        told = self.layers[:1] if alike else self.layers
        return f"unroll {' | '.join(map(str, told))}"


def alike(num_layers: int, steps: Steps) -> Unroll:
    return Unroll(layers=(steps,) * num_layers)


@dataclass(frozen=True, slots=True, kw_only=True)
class SetUnroll:
    """A recurrent region's settings, and the engine or team that goes with them."""

    region: str
    engine: str
    unroll: Unroll | None
    split: Split | None = None
    threads: int | None = None

    def apply(self, plan: "Plan", graph: Graph) -> "Plan":
        old = plan.region(self.region)
        rewrite = replace(old.rewrite, threads=self.threads)
        new = replace(
            old, engine=self.engine, rewrite=rewrite, unroll=self.unroll, split=self.split
        )
        return plan.exchange((old,), (new,), graph)


@dataclass(frozen=True, slots=True, kw_only=True)
class SetSteps:
    """One layer's setting: what may change between two chunks of a sequence."""

    region: str
    layer: int
    steps: Steps

    def apply(self, plan: "Plan", graph: Graph) -> "Plan":
        old = plan.region(self.region)
        assert old.unroll is not None, "only a region that is unrolled has layers to set"
        layers = list(old.unroll.layers)
        layers[self.layer] = self.steps
        new = replace(old, unroll=Unroll(layers=tuple(layers)))
        return plan.exchange((old,), (new,), graph)


def moves(plan: "Plan", space: "Space") -> Iterator[SetUnroll | SetSteps]:
    for region in plan.regions:
        stack = stack_of(region, space)
        if stack is None:
            continue
        if region.unroll is None:
            yield from (
                SetUnroll(region=region.name, **way._asdict()) for way in ways(stack, space)
            )
            continue
        yield SetUnroll(region=region.name, engine=CALLER, unroll=None)
        for layer, before in enumerate(region.unroll.layers):
            for steps in choices():
                if steps != replace(before, kernel=""):
                    yield SetSteps(region=region.name, layer=layer, steps=steps)


def choices() -> list[Steps]:
    """The settings of one layer."""
    return [ROLLED, *(Steps(then=x) for x in FACTORS), AT_ONCE, Steps(first=16, then=1)]


class Way(NamedTuple):
    """For a whole stack: an engine or team, settings, how it is divided, and how many threads its
    kernels have; None: as many as the engine has cores."""

    engine: str
    unroll: Unroll
    split: Split | None = None
    threads: int | None = None


def ways(stack: Stack, space: "Space") -> Iterator[Way]:
    """Worth trying, most hopeful first. Rows of different lengths leave between chunks, or are
    shared out first; what is all of one length is done at once, in chunks if there is no room for
    that, or flows through the layers in chunks."""
    whole, chunks = (alike(stack.num_layers, steps) for steps in (AT_ONCE, Steps(then=32)))
    first, second = (chunks, whole) if stack.ragged else (whole, chunks)
    yield Way(CALLER, first)
    cores = single_cores(space)
    if len(cores) > 1 and space.usable_cores > 1:
        together = team(cores)
        if stack.num_layers * stack.num_directions > 1:
            factors = (16, 64) if stack.num_directions == 1 else (0, 64)
            yield from (
                Way(together, alike(stack.num_layers, Steps(then=factor))) for factor in factors
            )
        yield Way(together, first, Split(how=ROWS))
    yield Way(CALLER, second)
    if space.max_threads > 1:
        yield from (Way(CALLER, steps, threads=1) for steps in dict.fromkeys((first, whole)))


def stack_of(region: "Region", space: "Space") -> Stack | None:
    """Of a region that is one recurrent op and nothing else."""
    return space.stacks.get(region.ops[0]) if len(region.ops) == 1 else None


def why_illegal(plan: "Plan", space: "Space") -> str | None:
    for region in plan.regions:
        reason = None if region.unroll is None else _why_illegal(region, region.unroll, space)
        if reason is not None:
            return f"region {region.name}: {reason}"
    return None


def _why_illegal(region: "Region", unroll: Unroll, space: "Space") -> str | None:
    stack = stack_of(region, space)
    if stack is None:
        return "only a region that is one recurrent op, with weights of its own, is unrolled"
    if len(unroll.layers) != stack.num_layers:
        return f"{len(unroll.layers)} settings for {stack.num_layers} layers"
    if region.rewrite.backend != "eager" or region.rewrite.option:
        return "its kernels are named layer by layer: its rewrite is eager"
    if region.split is not None and region.split.how != ROWS:
        return f"recurrent layers are divided by rows, not by {region.split.how}"
    if region.rewrite.threads is not None and region.engine != CALLER:
        return "an engine's kernels have as many threads as it has cores"
    lone = stack.num_layers * stack.num_directions == 1
    if region.split is None and lone and len(members(region.engine)) > 1:
        return "one layer in one direction has nothing to overlap with"
    for steps in unroll.layers:
        reason = _why_odd(steps, space.kernels[region.name])
        if reason is not None:
            return reason
    return None


def _why_odd(steps: Steps, kernels: frozenset[str]) -> str | None:
    for name, number in (("then", steps.then), ("first", steps.first)):
        if type(number) is not int or not 0 <= number <= MOST:
            return f"steps.{name}={number!r:.20}: a whole number from 0 to {MOST}"
    if steps.first and not steps.then:
        return f"first={steps.first}: then needs a number, too"
    if steps.kernel == COMPILED and not steps.then:
        return f"kernel {COMPILED!r} compiles so many steps at a time, not a whole sequence"
    if steps.kernel and steps.kernel not in kernels:
        return f"no kernel {steps.kernel!r} for it; there are {', '.join(sorted(kernels))}"
    return None
