import mmap
import resource
import threading
import time

import pytest

from gearshift.observe.hal import check_counters
from gearshift.observe.hal.perf_counters import PerfCounters
from gearshift.observe.hal.perf_events import (
    ATTR,
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

PAGE = mmap.PAGESIZE


def touch(num_pages: int) -> None:
    with mmap.mmap(-1, num_pages * PAGE) as fresh:
        fresh.madvise(mmap.MADV_NOHUGEPAGE)
        for page in range(num_pages):
            fresh[page * PAGE] = 1


def faults_of(event: PerfEvent) -> float:
    count = event.read()
    assert count is not None
    return count.value


def opened(kind: EventKind) -> PerfEvent:
    event = PerfEvent(kind)
    if not event.readable:
        pytest.skip(event.reason)
    return event


def test_the_attribute_has_the_size_the_kernel_expects() -> None:
    assert ATTR.size == 64


def test_page_faults_are_counted_in_this_thread_and_in_those_it_starts() -> None:
    event = opened(PAGE_FAULTS)
    start = faults_of(event)
    touch(300)
    mine = faults_of(event) - start
    thread = threading.Thread(target=touch, args=(500,))
    thread.start()
    thread.join()
    both = faults_of(event) - start
    event.close()
    assert 300 <= mine < 100_000
    assert both - mine >= 500
    assert event.read() is None


def switches_of_this_thread() -> int:
    usage = resource.getrusage(resource.RUSAGE_THREAD)
    return usage.ru_nvcsw + usage.ru_nivcsw


def test_sleeping_switches_context() -> None:
    """As often as the kernel's own books say: a sleep whose time is up before it begins switches
    nothing."""
    event = opened(CONTEXT_SWITCHES)
    start = faults_of(event)
    start_switches = switches_of_this_thread()
    for _ in range(20):
        time.sleep(0.001)
    switches = switches_of_this_thread() - start_switches
    assert faults_of(event) - start >= switches > 10
    event.close()


def test_another_architecture_is_unavailable_with_a_reason() -> None:
    event = PerfEvent(CYCLES, system="Linux riscv64")
    assert event.read() is None
    assert "riscv64" in event.reason


def test_what_this_machine_lacks_says_why() -> None:
    counters = PerfCounters()
    for row in counters.describe():
        assert row.source == "measured" or len(row.origin.split()) > 3, row
    check_counters(counters)


class FakeEvent(PerfEvent):
    """A CPU with all counters, told what to count."""

    counts: dict[EventKind, Count] = {}
    absent: set[EventKind] = set()

    def __init__(self, kind: EventKind) -> None:
        self.kind, self.reason, self.open = kind, "", kind not in self.absent
        if not self.open:
            self.reason = "no such event"

    @property
    def readable(self) -> bool:
        return self.open

    def read(self) -> Count | None:
        return self.counts[self.kind] if self.open else None

    def close(self, reason: str = "closed") -> None:
        self.open, self.reason = False, reason


def counts(**values: float) -> dict[EventKind, Count]:
    kinds = (CYCLES, L1D_LOADS, L1D_MISSES, LLC_LOADS, LLC_MISSES, PAGE_FAULTS, CONTEXT_SWITCHES)
    keys = {kind: kind.name.replace(" ", "_").lower() for kind in kinds}
    seconds = values.get("seconds", 0.0)
    return {k: Count(value=values.get(key, 0.0), enabled_s=seconds) for k, key in keys.items()}


def test_hits_bandwidth_and_clock_are_derived_from_the_counts() -> None:
    class Cpu(FakeEvent):
        counts = counts()

    counters = PerfCounters(open_event=Cpu)
    assert counters.read(0.0)["cache.l1_hit_share"].value is None
    Cpu.counts = counts(
        cycles=6e9, l1d_loads=1e9, l1d_misses=2e8, llc_loads=1e8, llc_misses=5e7, seconds=2.0
    )
    values = {name: metric.value for name, metric in counters.read(4.0).items()}
    assert values["cache.l1_hit_share"] == pytest.approx(0.8)
    assert values["cache.l2_hit_share"] == pytest.approx(0.9)
    assert values["cache.l3_hit_share"] == pytest.approx(0.95)
    assert values["memory.dram_bytes_s"] == pytest.approx(5e7 * 64 / 4)
    assert values["process.clock_hz"] == pytest.approx(3e9)
    check_counters(counters, now_s=5.0)


def test_an_event_the_cpu_lacks_takes_only_its_own_metrics_away() -> None:
    class Cpu(FakeEvent):
        counts = counts()
        absent = {LLC_LOADS}

    counters = PerfCounters(open_event=Cpu)
    sources = {row.name: row.source for row in counters.describe()}
    assert sources["cache.l2_hit_share"] == "unavailable"
    assert sources["cache.l3_hit_share"] == "measured"
    check_counters(counters)
