"""The recurrent layers of plans that serve: settings handed over in the middle of a sequence, and
what each chunk took.

Must not know why the plan changes. What has been computed stays where it is: only who goes on, and
by which settings, is another.
"""

import threading
from collections import defaultdict, deque
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from gearshift.act.compile import Variant
from gearshift.act.executor import drained
from gearshift.act.lower.unroll import Unrolled
from gearshift.act.prepared import Prepared
from gearshift.act.recurrent.runner import Chunk
from gearshift.ir.snapshot import LayerSeen
from gearshift.ir.topology import CALLER, members
from gearshift.plan.plan import Region
from gearshift.plan.unroll import Steps

MAX_STRIDES = 1024
"""Of each layer."""
PAUSE_S = 0.5
"""After so much time without a chunk another stride begins."""


def take_own(prepared: Prepared) -> None:
    """Calls go by its own settings again, whatever they were to go on by when it left."""
    for _, unrolled in _unrolled(_built(prepared)):
        unrolled.leave_to(None)


def hand_over(old: Prepared, new: Prepared) -> None:
    """Calls under way on the old plan go on by the new one's settings from their next chunk on, on
    its engines."""
    for before in _built(old):
        for after in _built(new):
            if before.fragment is after.fragment and before.signature == after.signature:
                _hand_over(before, after)


def _hand_over(before: Variant, after: Variant) -> None:
    found = {region.ops: (region, unrolled) for region, unrolled in _unrolled([after])}
    for region, unrolled in _unrolled([before]):
        other, new = found.get(region.ops, (region, unrolled))
        if new is not unrolled and _can_go_on(region.engine, other.engine):
            unrolled.leave_to(new)


def _can_go_on(before: str, after: str) -> bool:
    """Between two chunks the thread that waits for a team, or computes by itself, can start other
    engines; an engine of its own can only go on by itself."""
    return before in (CALLER, after) or len(members(before)) > 1


def chunks_of(variants: Iterable[Variant]) -> Iterator[tuple[Region, Chunk]]:
    """By region; of the calls since this was last asked."""
    for region, unrolled in _unrolled(variants):
        for runner in unrolled.runners:
            for chunk in drained(runner.seen):
                yield region, chunk


@dataclass(slots=True)
class Stride:
    """Chunks of a layer by one setting, one after the other."""

    steps: Steps
    region: Region
    begin_s: float
    end_s: float
    busy_s: float
    num_steps: int
    switch_s: float | None
    """If it began within a call: how long that took."""


class Strides:
    """How layers went through sequences, since the plan first unrolled them."""

    def __init__(self) -> None:
        self.num_switches = 0
        """Within calls, for each layer."""
        self._by_layer: dict[tuple[str, int], deque[Stride]] = {}
        self._adding = threading.Lock()

    def add(self, chunks: Iterable[tuple[Region, Chunk]]) -> None:
        with self._adding:
            for region, chunk in sorted(chunks, key=lambda told: told[1].begin_s):
                self._add(region, chunk)

    def _add(self, region: Region, chunk: Chunk) -> None:
        mine = self._by_layer.setdefault((region.name, chunk.layer), deque(maxlen=MAX_STRIDES))
        took_s, last = chunk.end_s - chunk.begin_s, mine[-1] if mine else None
        self.num_switches += chunk.switch_s is not None
        if last is None or not _goes_on(last, region, chunk):
            about = (chunk.begin_s, chunk.end_s, took_s, chunk.num_steps, chunk.switch_s)
            mine.append(Stride(chunk.steps, region, *about))
        else:
            last.end_s = max(last.end_s, chunk.end_s)
            last.busy_s += took_s
            last.num_steps += chunk.num_steps

    def by_layer(self) -> dict[tuple[str, int], list[Stride]]:
        """By region and layer, in their order."""
        with self._adding:
            found = {place: list(self._by_layer[place]) for place in sorted(self._by_layer)}
        return {place: sorted(mine, key=lambda s: s.begin_s) for place, mine in found.items()}


def _goes_on(last: Stride, region: Region, chunk: Chunk) -> bool:
    alike = (last.steps, last.region) == (chunk.steps, region) and chunk.switch_s is None
    return alike and abs(chunk.begin_s - last.end_s) < PAUSE_S


def layers_of(chunks: Iterable[tuple[Region, Chunk]]) -> tuple[LayerSeen, ...]:
    """What each layer did, all its chunks together."""
    found: dict[tuple[str, int], list[Chunk]] = defaultdict(list)
    for region, chunk in chunks:
        found[region.name, chunk.layer].append(chunk)
    return tuple(_seen(region, layer, mine) for (region, layer), mine in sorted(found.items()))


def _seen(region: str, layer: int, chunks: list[Chunk]) -> LayerSeen:
    return LayerSeen(
        region=region,
        layer=layer,
        busy_s=sum(chunk.end_s - chunk.begin_s for chunk in chunks),
        num_steps=sum(chunk.num_steps for chunk in chunks),
        row_steps=sum(chunk.num_steps * chunk.num_rows for chunk in chunks),
        num_walks=sum(chunk.at == 0 for chunk in chunks),
        most_steps=max(chunk.at + chunk.num_steps for chunk in chunks),
        most_rows=max(chunk.num_rows for chunk in chunks),
    )


def _built(prepared: Prepared) -> list[Variant]:
    return [built for variants in prepared.variants for built in variants.built]


def _unrolled(variants: Iterable[Variant]) -> Iterator[tuple[Region, Unrolled]]:
    for variant in variants:
        for region, built in zip(variant.regions, variant.executables, strict=True):
            if isinstance(built.run, Unrolled):
                yield region, built.run
