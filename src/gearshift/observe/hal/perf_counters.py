"""What performance events say of this process: cache hits, memory traffic, clock, switches, faults.

Must not know how an event is opened. Hits are counted from the core outwards: a load served by L3
*or nearer* is a hit of L3, so that a kernel living in L1 has good values all the way.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from gearshift.ir.measurement import Source
from gearshift.observe.hal.counters import Description, Readings, Unit, measured, nothing, share
from gearshift.observe.hal.perf_events import (
    CONTEXT_SWITCHES,
    CYCLES,
    L1D_LOADS,
    L1D_MISSES,
    LLC_LOADS,
    LLC_MISSES,
    PAGE_FAULTS,
    Count,
    EventKind,
    PerfEvent,
)

LINE_BYTES = 64

Deltas = tuple[Count, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Derived:
    """A metric made of events: of their growth and the seconds in which it came about."""

    name: str
    unit: Unit
    kinds: tuple[EventKind, ...]
    value: Callable[[float, Deltas], float | None]
    origin: str


def _hits(_: float, deltas: Deltas) -> float | None:
    missed, loads = deltas
    return share(loads.value - missed.value, loads.value)


def _rate(seconds: float, deltas: Deltas) -> float | None:
    return deltas[0].value / seconds


def _bandwidth(seconds: float, deltas: Deltas) -> float | None:
    return deltas[0].value * LINE_BYTES / seconds


def _clock(_: float, deltas: Deltas) -> float | None:
    return deltas[0].value / deltas[0].enabled_s if deltas[0].enabled_s > 0 else None


DERIVED = (
    Derived(
        name="cache.l1_hit_share",
        unit=Unit.SHARE,
        kinds=(L1D_MISSES, L1D_LOADS),
        value=_hits,
        origin="1 - L1D misses / L1D loads",
    ),
    Derived(
        name="cache.l2_hit_share",
        unit=Unit.SHARE,
        kinds=(LLC_LOADS, L1D_LOADS),
        value=_hits,
        origin="1 - LLC loads / L1D loads",
    ),
    Derived(
        name="cache.l3_hit_share",
        unit=Unit.SHARE,
        kinds=(LLC_MISSES, L1D_LOADS),
        value=_hits,
        origin="1 - LLC misses / L1D loads",
    ),
    Derived(
        name="memory.dram_bytes_s",
        unit=Unit.BYTES_S,
        kinds=(LLC_MISSES,),
        value=_bandwidth,
        origin=f"LLC misses * {LINE_BYTES} bytes",
    ),
    Derived(
        name="process.clock_hz",
        unit=Unit.HZ,
        kinds=(CYCLES,),
        value=_clock,
        origin="cycles / time on a core",
    ),
    Derived(
        name="process.context_switches_s",
        unit=Unit.PER_S,
        kinds=(CONTEXT_SWITCHES,),
        value=_rate,
        origin="context switches",
    ),
    Derived(
        name="process.page_faults_s",
        unit=Unit.PER_S,
        kinds=(PAGE_FAULTS,),
        value=_rate,
        origin="page faults",
    ),
)


class PerfCounters:
    def __init__(self, *, open_event: Callable[[EventKind], PerfEvent] = PerfEvent) -> None:
        kinds = dict.fromkeys(kind for d in DERIVED for kind in d.kinds)
        self._events = {kind: open_event(kind) for kind in kinds}
        self._live = [d for d in DERIVED if all(self._events[k].readable for k in d.kinds)]
        self._kinds = tuple(dict.fromkeys(kind for d in self._live for kind in d.kinds))
        self._nothing = nothing(derived.name for derived in DERIVED)
        self._before: tuple[float, Mapping[EventKind, Count | None]] | None = None

    def describe(self) -> tuple[Description, ...]:
        return tuple(self._describe(derived) for derived in DERIVED)

    def read(self, now_s: float) -> Readings:
        counts = {kind: self._events[kind].read() for kind in self._kinds}
        before, self._before = self._before, (now_s, counts)
        readings = dict(self._nothing)
        if before is not None and now_s > before[0]:
            for derived in self._live:
                deltas = [_growth(before[1][kind], counts[kind]) for kind in derived.kinds]
                value = _value(derived, now_s - before[0], deltas)
                readings[derived.name] = measured(value)
        return readings

    def close(self) -> None:
        for event in self._events.values():
            event.close()

    def _describe(self, derived: Derived) -> Description:
        events = [self._events[kind] for kind in derived.kinds]
        reasons = dict.fromkeys(event.reason for event in events if not event.readable)
        source = Source.UNAVAILABLE if reasons else Source.MEASURED
        origin = "; ".join(reasons) or f"perf events of this process: {derived.origin}"
        return Description(name=derived.name, unit=derived.unit, source=source, origin=origin)


def _growth(old: Count | None, new: Count | None) -> Count | None:
    """Never below 0, though a scaled count may be: its scale changes as it goes."""
    if old is None or new is None:
        return None
    return Count(
        value=max(0.0, new.value - old.value),
        enabled_s=max(0.0, new.enabled_s - old.enabled_s),
    )


def _value(derived: Derived, seconds: float, deltas: Sequence[Count | None]) -> float | None:
    known = tuple(delta for delta in deltas if delta is not None)
    return derived.value(seconds, known) if len(known) == len(deltas) else None
