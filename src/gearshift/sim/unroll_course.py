"""One call of a stack of recurrent layers on its engines: where chunks end, who waits for whom, how
long it all takes.

Must not know who chose the settings, or whether anything is seen of it.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from gearshift.act.recurrent.rows import Rows
from gearshift.decide.unroll.view import Settings
from gearshift.ir.recurrent import Stack
from gearshift.plan.footprint import layer_groups
from gearshift.plan.unroll import Steps
from gearshift.sim.unroll_profiles import Pace

NUM_CORES = 2
Cores = tuple[int, ...]
Engines = tuple[Cores, ...]
ALONE: Engines = ((0,),)
WIDE: Engines = ((0, 1),)
TEAM: Engines = ((0,), (1,))
"""An engine of one thread; one of two; two of one each."""
HAND_OVER_S = 3e-5
"""Of a chunk, from one engine to another."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Crowd:
    """How many neighbours each core has, up to a moment of the call and after it."""

    before: tuple[int, ...] = (0,) * NUM_CORES
    after: tuple[int, ...] = (0,) * NUM_CORES
    at_s: float = 0.0

    def end_s(self, cores: Cores, start_s: float, work_s: float) -> float:
        """When work is done that is begun then, and takes so long undisturbed. Threads wait for the
        one that has the least of its core."""
        first, then = 1 + self._most(self.before, cores), 1 + self._most(self.after, cores)
        left_s = max(0.0, self.at_s - start_s)
        if work_s * first <= left_s:
            return start_s + work_s * first
        return start_s + left_s + (work_s - left_s / first) * then

    def delay_share(self, cores: Cores, took_s: float) -> float:
        """How long a thread that always had work waited for its core, in a call that took so
        long."""
        first, then = self._most(self.before, cores), self._most(self.after, cores)
        early = min(1.0, self.at_s / took_s)
        return early * first / (1 + first) + (1 - early) * then / (1 + then)

    @staticmethod
    def _most(neighbours: tuple[int, ...], cores: Cores) -> int:
        return max(neighbours[core] for core in cores)


@dataclass(frozen=True, slots=True, kw_only=True)
class Call:
    lengths: tuple[int, ...]
    """Of the rows, the longest first."""
    crowd: Crowd = field(default_factory=Crowd)
    reached_share: float = 0.0
    """Of its steps: those that are done when a new setting comes."""
    noise: float = 1.0
    """How many times as long as usual everything takes."""
    rows: Rows = field(init=False)

    def __post_init__(self) -> None:
        uniform = self.lengths[0] == self.lengths[-1]
        rows = Rows(self.lengths[0], len(self.lengths)) if uniform else Rows.ragged(self.lengths)
        object.__setattr__(self, "rows", rows)

    @property
    def num_steps(self) -> int:
        return self.lengths[0]

    @property
    def num_rows(self) -> int:
        return len(self.lengths)

    @property
    def ragged(self) -> bool:
        return self.lengths[0] != self.lengths[-1]

    @property
    def filled_share(self) -> float:
        return sum(self.lengths) / (self.num_steps * self.num_rows)

    def rows_at(self, step: int) -> int:
        """Those that have not ended before it."""
        return self.rows.alive(step)

    def chunk_end(self, start: int, steps: Steps) -> int:
        return self.rows.chunk_end(start, steps)


@dataclass(frozen=True, slots=True)
class Chunk:
    end: int
    """The step that the next one begins with."""
    work_s: float
    """What it takes undisturbed."""


Chunks = Sequence[Chunk]


def chunks_of(call: Call, before: Steps, after: Steps, pace: Pace) -> Chunks:
    """Of one layer in one direction. A new setting that comes in the middle of the sequence holds
    from the next chunk on. Rows that end within a chunk are computed to its end."""
    found, start, reached = [], 0, call.reached_share * call.num_steps
    while start < call.num_steps:
        end = call.chunk_end(start, before if start < reached else after)
        found.append(Chunk(end, pace.work_s(end - start, call.rows_at(start))))
        start = end
    return found


def layers_of(call: Call, before: Settings, after: Settings, paces: Sequence[Pace]) -> list[Chunks]:
    """Layers of one pace and setting share theirs."""
    known: dict[tuple[Steps, Steps, int], Chunks] = {}
    found = []
    for old, new, pace in zip(before, after, paces, strict=True):
        key = (old, new, id(pace))
        if key not in known:
            known[key] = chunks_of(call, old, new, pace)
        found.append(known[key])
    return found


@dataclass(frozen=True, slots=True, kw_only=True)
class Ran:
    took_s: float
    layers_s: tuple[float, ...]
    """How long each layer was being computed,"""
    busy_s: tuple[float, ...]
    """and each engine was at work."""


def run(stack: Stack, engines: Engines, crowd: Crowd, layers: Sequence[Chunks]) -> Ran:
    if len(engines) == 1:
        return _one_after_the_other(stack, engines[0], crowd, layers)
    if stack.num_directions > 1:
        return _both_ways(engines, crowd, layers)
    return _Flow(stack, engines, crowd, layers).run()


def _one_after_the_other(stack: Stack, cores: Cores, crowd: Crowd, layers: Sequence[Chunks]) -> Ran:
    now_s, layers_s = 0.0, []
    for chunks in layers:
        work_s = stack.num_directions * sum(chunk.work_s for chunk in chunks)
        end_s = crowd.end_s(cores, now_s, work_s)
        layers_s.append(end_s - now_s)
        now_s = end_s
    return Ran(took_s=now_s, layers_s=tuple(layers_s), busy_s=(now_s,))


def _both_ways(engines: Engines, crowd: Crowd, layers: Sequence[Chunks]) -> Ran:
    """Each engine has one direction of every layer; the next layer needs both."""
    now_s, layers_s, busy_s = 0.0, [], [0.0] * len(engines)
    for chunks in layers:
        work_s = sum(chunk.work_s for chunk in chunks)
        ends_s = [crowd.end_s(cores, now_s, work_s) for cores in engines]
        busy_s = [busy + end - now_s for busy, end in zip(busy_s, ends_s, strict=True)]
        layers_s.append(max(ends_s) - now_s)
        now_s = max(ends_s) + HAND_OVER_S
    return Ran(took_s=now_s, layers_s=tuple(layers_s), busy_s=tuple(busy_s))


class _Flow:
    """Consecutive layers on each engine, chunks flowing from one to the next: a chunk can be
    computed when the layer below has made its steps. Of those that can, an engine takes the one of
    the highest layer, for which others wait."""

    def __init__(
        self, stack: Stack, engines: Engines, crowd: Crowd, layers: Sequence[Chunks]
    ) -> None:
        self._engines, self._crowd, self._layers = engines, crowd, layers
        groups = layer_groups(stack, len(engines))
        self._homes = [member for member, group in enumerate(groups) for _ in group]
        self._made_s: list[list[float]] = [[] for _ in layers]
        """By layer, when each of its chunks was done."""
        self._below = [0] * len(layers)
        """For each layer, the chunk of the one below that makes the steps it needs next."""
        self._free_s = [0.0] * len(engines)
        self._layers_s = [0.0] * len(layers)
        self._busy_s = [0.0] * len(engines)

    def run(self) -> Ran:
        for _ in range(sum(map(len, self._layers))):
            start_s, layer = min(self._ready())
            self._compute(start_s, -layer)
        took_s = max(self._free_s)
        return Ran(took_s=took_s, layers_s=tuple(self._layers_s), busy_s=tuple(self._busy_s))

    def _ready(self) -> Iterator[tuple[float, int]]:
        """When the next chunk of each layer can begin, if that is known, and minus the layer. What
        is not known begins later than the first of these."""
        for layer, (chunks, made_s) in enumerate(zip(self._layers, self._made_s, strict=True)):
            if len(made_s) == len(chunks):
                continue
            come_s = self._come_s(layer, chunks[len(made_s)].end)
            if come_s is not None:
                yield max(come_s, self._free_s[self._homes[layer]]), -layer

    def _come_s(self, layer: int, end: int) -> float | None:
        """When all it reads is there."""
        if layer == 0:
            return 0.0
        below, made_s = self._layers[layer - 1], self._made_s[layer - 1]
        while below[self._below[layer]].end < end:
            self._below[layer] += 1
        if self._below[layer] >= len(made_s):
            return None
        across = self._homes[layer] != self._homes[layer - 1]
        return made_s[self._below[layer]] + (HAND_OVER_S if across else 0.0)

    def _compute(self, start_s: float, layer: int) -> None:
        home, made_s = self._homes[layer], self._made_s[layer]
        work_s = self._layers[layer][len(made_s)].work_s
        end_s = self._crowd.end_s(self._engines[home], start_s, work_s)
        made_s.append(end_s)
        self._free_s[home] = end_s
        self._layers_s[layer] += end_s - start_s
        self._busy_s[home] += end_s - start_s
