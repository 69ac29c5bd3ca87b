"""Where the bytes of a region came from, modelled: no counter tells it on most virtual machines.

Must not know how work is timed or counted. Two facts bound the answer. A set larger than a cache
finds in it only the part that fits. And in the time measured, a level cannot have delivered more
than its bandwidth, so the rest came from nearer.
"""

from collections import deque
from dataclasses import dataclass
from enum import StrEnum

from gearshift.ir.measurement import Metric, Source
from gearshift.ir.roofline import Roofline
from gearshift.ir.work import Work
from gearshift.observe.hal.counters import (
    UNAVAILABLE,
    Description,
    Readings,
    Unit,
    modelled,
    nothing,
    share,
)

MAX_NOTED = 256
"""Pieces of work remembered between two reads; of more, the latest stand for all."""

UNITS = {
    "cache.l1_hit_share": Unit.SHARE,
    "cache.l2_hit_share": Unit.SHARE,
    "cache.l3_hit_share": Unit.SHARE,
    "memory.dram_bytes_s": Unit.BYTES_S,
}


class Bound(StrEnum):
    COMPUTE = "compute"
    MEMORY = "memory"


@dataclass(frozen=True, slots=True, kw_only=True)
class Traffic:
    """Hit shares count bytes served by a level or one nearer. `bound` is None without work."""

    l1_hit_share: Metric
    l2_hit_share: Metric
    l3_hit_share: Metric
    dram_bytes_s: Metric
    bound: Bound | None


NO_TRAFFIC = Traffic(
    l1_hit_share=UNAVAILABLE,
    l2_hit_share=UNAVAILABLE,
    l3_hit_share=UNAVAILABLE,
    dram_bytes_s=UNAVAILABLE,
    bound=None,
)


def _timed(work: Work) -> bool:
    return work.known and work.seconds > 0


def model_traffic(work: Work, roofline: Roofline) -> Traffic:
    if not _timed(work):
        return NO_TRAFFIC
    l1, l2, l3 = hits = hit_shares(work, roofline)
    return Traffic(
        l1_hit_share=modelled(l1),
        l2_hit_share=modelled(l2),
        l3_hit_share=modelled(l3),
        dram_bytes_s=modelled((1.0 - l3) * work.moved_bytes / work.seconds),
        bound=_bound(work, roofline, hits),
    )


def hit_shares(work: Work, roofline: Roofline) -> tuple[float, float, float]:
    """Each core has its own L1 and L2."""
    caches, cores = roofline.caches, roofline.num_threads
    sizes = (caches.l1_bytes * cores, caches.l2_bytes * cores, caches.l3_bytes)
    beyond = (roofline.l2_bytes_s, roofline.l3_bytes_s, roofline.dram_bytes_s)
    hits: list[float] = [0.0]
    for size_bytes, bytes_s in zip(sizes, beyond, strict=True):
        fits = min(1.0, size_bytes / work.set_bytes)
        too_fast = 1.0 - bytes_s * work.seconds / work.moved_bytes
        hits.append(max(hits[-1], fits, too_fast))
    return hits[1], hits[2], hits[3]


def _bound(work: Work, roofline: Roofline, hits: tuple[float, float, float]) -> Bound:
    l1, l2, l3 = hits
    served = (l1, l2 - l1, l3 - l2, 1.0 - l3)
    rates = (
        roofline.l1_bytes_s,
        roofline.l2_bytes_s,
        roofline.l3_bytes_s,
        roofline.dram_bytes_s,
    )
    moving_s = sum(part * work.moved_bytes / r for part, r in zip(served, rates, strict=True))
    return Bound.MEMORY if moving_s > work.flops / roofline.peak_flops_s else Bound.COMPUTE


class ModelledMemory:
    """Counters over the work it is told of between two reads."""

    def __init__(self, *, roofline: Roofline | None) -> None:
        self.roofline = roofline
        self._closed = False
        self._work: deque[Work] = deque(maxlen=MAX_NOTED)

    def note(self, work: Work) -> None:
        """From any thread."""
        if _timed(work):
            self._work.append(work)

    def describe(self) -> tuple[Description, ...]:
        source = Source.UNAVAILABLE if self.roofline is None else Source.MODELLED
        origin = "roofline, working set and time of the work done; none without"
        if self.roofline is None:
            origin = "closed" if self._closed else "modelled once a run has measured the roofline"
        return tuple(
            Description(name=name, unit=unit, source=source, origin=origin)
            for name, unit in UNITS.items()
        )

    def read(self, now_s: float) -> Readings:
        work = [self._work.popleft() for _ in range(len(self._work))]
        if self.roofline is None or not work:
            return nothing(UNITS)
        moved_bytes = sum(one.moved_bytes for one in work)
        served = [0.0, 0.0, 0.0]
        for one in work:
            for level, hit_share in enumerate(hit_shares(one, self.roofline)):
                served[level] += hit_share * one.moved_bytes
        dram_bytes_s = (moved_bytes - served[-1]) / sum(one.seconds for one in work)
        values = (*(share(part, moved_bytes) for part in served), max(0.0, dram_bytes_s))
        return {name: modelled(value) for name, value in zip(UNITS, values, strict=True)}

    def close(self) -> None:
        self.roofline, self._closed = None, True
