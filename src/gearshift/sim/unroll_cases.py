"""Stacks of recurrent layers and the calls that come to them, drawn: sizes, lengths, engines,
limits, neighbours that come and go.

Must not know who chooses settings. All that is random comes from one generator.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from gearshift.decide.unroll.actions import CHOICES, MAX_LAYERS
from gearshift.decide.unroll.view import INPUT_KINDS, RAGGED, STREAMING, Settings
from gearshift.ir.recurrent import GRU, LSTM, Stack
from gearshift.plan.footprint import Footprint, layer_groups
from gearshift.plan.unroll import AT_ONCE, ROLLED, Steps
from gearshift.sim.learning import apart
from gearshift.sim.unroll_course import (
    ALONE,
    NUM_CORES,
    TEAM,
    WIDE,
    Call,
    Crowd,
    Engines,
    Ran,
    layers_of,
    run,
)
from gearshift.sim.unroll_profiles import Kernels, Pace

KINDS = (LSTM, GRU)
HIDDEN_SIZES = (32, 48, 64, 96, 128, 192, 256, 384, 512, 768, 1024)
INPUT_SIZES = (32, 80, 128, 256, 512)
ROW_COUNTS = (1, 2, 4, 8, 16, 32, 64)
FEWEST_RAGGED = 4
"""Rows of a ragged batch."""
LONG = (4.0, 9.0)
"""How many steps a sequence has, as powers of two;"""
SHORT = 16
"""and at most, of a stream."""
TWO_WAYS = 0.2
"""How likely a stack goes through a sequence from both ends."""
LIMITED = 0.5
"""How likely memory is scarce."""
COUNTED = 0.75
"""How likely something is known of the cache,"""
CACHES_BYTES = (1 << 20, 8 << 20, 32 << 20)
"""and how large it is."""
SKEWS = (1.0, 4.0)
"""Lengths are shares of the longest, to this power."""
CALLS = 40
"""Of an episode, after the first."""
COME_OR_GO = 0.1
"""How likely neighbours come or go on a core in the course of a call, or before the next;"""
MOST_NEIGHBOURS = 2
LATEST = 1.5
"""at any time up to so many times what the call takes undisturbed."""
NOISE = 0.03
USUAL_TEAM, USUAL_RAGGED = (16, 64), (8, 32)
"""How many steps are taken at a time where nobody has chosen yet."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Architecture:
    kind: str
    num_layers: int
    hidden_size: int

    def __str__(self) -> str:
        return f"{self.kind} {self.num_layers} x {self.hidden_size}"


ARCHITECTURES = tuple(
    Architecture(kind=kind, num_layers=num_layers, hidden_size=hidden_size)
    for kind in KINDS
    for num_layers in range(1, MAX_LAYERS + 1)
    for hidden_size in HIDDEN_SIZES
)


def divided() -> tuple[list[Architecture], list[Architecture]]:
    """To train on, to test on."""
    return apart(ARCHITECTURES, str)


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """One stack, where it runs, and what kind of calls it gets."""

    stack: Stack
    inputs: str
    num_rows: int
    num_steps: int
    """The most that a call has."""
    engines: Engines
    paces: tuple[Pace, ...]
    """Of each layer in one direction on its engine,"""
    plain_paces: tuple[Pace, ...]
    """and on one thread."""
    skew: float = 1.0
    memory_limit_bytes: int | None = None
    cache_bytes: int | None = None
    """None: nothing is known of it."""

    @property
    def footprint(self) -> Footprint:
        return Footprint(
            stack=self.stack,
            num_rows=self.num_rows,
            num_steps=self.num_steps,
            num_engines=len(self.engines),
        )

    @property
    def groups(self) -> tuple[range, ...]:
        """For each engine, its layers."""
        return layer_groups(self.stack, len(self.engines))

    def fits(self, settings: Settings) -> bool:
        limit = self.memory_limit_bytes
        return limit is None or self.footprint.held_bytes(settings) <= limit

    def alike(self, steps: Steps) -> Settings:
        """For all layers, or the next smaller that fits."""
        needs = self.footprint
        most = needs.most_steps(steps)
        smaller = [other for other in CHOICES if needs.most_steps(other) <= most]
        ordered = [steps, *sorted(smaller, key=needs.most_steps, reverse=True)]
        every = [(other,) * self.stack.num_layers for other in (*ordered, ROLLED)]
        return next((settings for settings in every if self.fits(settings)), every[-1])

    def run(self, call: Call, before: Settings, after: Settings) -> Ran:
        layers = layers_of(call, before, after, self.paces)
        return run(self.stack, self.engines, call.crowd, layers)

    def reference_s(self, call: Call) -> float:
        """All at once, padded, on one undisturbed thread."""
        size = call.num_steps, call.num_rows
        return self.stack.num_directions * sum(pace.work_s(*size) for pace in self.plain_paces)

    def hit_share(self, layer: int, steps: Steps) -> float | None:
        """Of what a layer reads, modelled: as much as there is room for in the cache beside a chunk
        of it."""
        if self.cache_bytes is None:
            return None
        weights = self.stack.weight_count(layer) // self.stack.num_directions
        needed = weights * self.stack.item_bytes + self.footprint.chunk_bytes(steps)
        return min(1.0, self.cache_bytes / needed)


@dataclass(frozen=True, slots=True, kw_only=True)
class Episode:
    case: Case
    start: Settings
    calls: tuple[Call, ...]


def draw_episode(
    architectures: Sequence[Architecture],
    kernels: Kernels,
    random: np.random.Generator,
    *,
    mixed: float = 0.0,
    usual: Steps | None = None,
) -> Episode:
    """Layers begin with what is usual, a plan's if it is not said; so likely, each with any."""
    architecture = architectures[int(random.integers(len(architectures)))]
    case = draw_case(architecture, kernels, random)
    if random.random() < mixed:
        start = _mixed(case, random)
    else:
        start = _usual(case, random) if usual is None else case.alike(usual)
    return Episode(case=case, start=start, calls=draw_calls(case, random))


def draw_case(architecture: Architecture, kernels: Kernels, random: np.random.Generator) -> Case:
    inputs = INPUT_KINDS[int(random.integers(len(INPUT_KINDS)))]
    num_rows = int(random.choice(ROW_COUNTS))
    if inputs == RAGGED:
        num_rows = max(FEWEST_RAGGED, num_rows)
    two_ways = inputs != STREAMING and random.random() < TWO_WAYS
    stack = Stack(
        kind=architecture.kind,
        num_layers=architecture.num_layers,
        input_size=int(random.choice(INPUT_SIZES)),
        hidden_size=architecture.hidden_size,
        num_directions=2 if two_ways else 1,
        ragged=inputs == RAGGED,
    )
    engines = _engines(stack, random)
    long, short = 2 ** random.uniform(*LONG), random.integers(1, SHORT + 1)
    case = Case(
        stack=stack,
        inputs=inputs,
        num_rows=num_rows,
        num_steps=int(short if inputs == STREAMING else long),
        engines=engines,
        paces=paces_of(stack, kernels, len(engines[0]), num_rows),
        plain_paces=paces_of(stack, kernels, 1, num_rows),
        skew=float(random.choice(SKEWS)),
        cache_bytes=int(random.choice(CACHES_BYTES)) if random.random() < COUNTED else None,
    )
    return _limited(case, random)


def paces_of(stack: Stack, kernels: Kernels, threads: int, num_rows: int) -> tuple[Pace, ...]:
    """The first layer reads what comes in; all others are alike."""
    first, *others = (
        kernels.pace(
            stack.kind,
            threads,
            read_size=stack.read_size(layer),
            hidden_size=stack.hidden_size,
            num_rows=num_rows,
        )
        for layer in range(min(2, stack.num_layers))
    )
    return (first, *(others * (stack.num_layers - 1)))


def _engines(stack: Stack, random: np.random.Generator) -> Engines:
    lone = stack.num_layers * stack.num_directions == 1
    usable: tuple[Engines, ...] = (ALONE, WIDE) if lone else (ALONE, WIDE, TEAM)
    return usable[int(random.integers(len(usable)))]


def _limited(case: Case, random: np.random.Generator) -> Case:
    """Between what it needs step by step and all at once, if memory is scarce."""
    share = random.random()
    if random.random() >= LIMITED:
        return case
    needs, count = case.footprint, case.stack.num_layers
    least, most = (needs.held_bytes((steps,) * count) for steps in (ROLLED, AT_ONCE))
    return replace(case, memory_limit_bytes=int(least + share * (most - least)))


def _usual(case: Case, random: np.random.Generator) -> Settings:
    """What a plan begins with."""
    flows = len(case.engines) > 1 and case.stack.num_directions == 1
    if not flows and case.inputs != RAGGED:
        return case.alike(AT_ONCE)
    return case.alike(Steps(then=int(random.choice(USUAL_TEAM if flows else USUAL_RAGGED))))


def _mixed(case: Case, random: np.random.Generator) -> Settings:
    drawn = random.integers(len(CHOICES), size=case.stack.num_layers)
    settings = tuple(CHOICES[int(index)] for index in drawn)
    return settings if case.fits(settings) else case.alike(settings[0])


def draw_calls(case: Case, random: np.random.Generator) -> tuple[Call, ...]:
    neighbours, calls = tuple(map(int, random.integers(0, 2, NUM_CORES))), []
    for _ in range(CALLS + 1):
        quiet = Call(
            lengths=_lengths(case, random),
            reached_share=float(random.random()),
            noise=float(np.exp(random.normal(0, NOISE))),
        )
        after = tuple(_come_or_go(count, random) for count in neighbours)
        at_s = float(random.uniform(0, LATEST)) * case.reference_s(quiet)
        calls.append(replace(quiet, crowd=Crowd(before=neighbours, after=after, at_s=at_s)))
        neighbours = after
    return tuple(calls)


def _come_or_go(count: int, random: np.random.Generator) -> int:
    changes = random.random() < COME_OR_GO
    return int(random.integers(0, MOST_NEIGHBOURS + 1)) if changes else count


def _lengths(case: Case, random: np.random.Generator) -> tuple[int, ...]:
    if case.inputs != RAGGED:
        return (case.num_steps,) * case.num_rows
    shares = random.random(case.num_rows) ** case.skew
    lengths = np.maximum(1, np.ceil(shares * case.num_steps))
    return tuple(sorted(map(int, lengths), reverse=True))
