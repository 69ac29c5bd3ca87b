"""Takes snapshots: what came in, how long it took, who else was there.

Must not know what is made of them.
"""

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable
from time import monotonic, process_time, thread_time
from typing import Protocol

from gearshift.ir.measurement import Metric
from gearshift.ir.snapshot import Sample, Situation, Snapshot
from gearshift.observe.neighbours import Neighbours, wanted_by_us

ASLEEP_S = 1.0
"""After a pause of so long this process was stopped, and what was counted tells of nothing."""
OTHERS, RUNNABLE = "cpu.others_share", "cpu.runnable"
RUN_DELAY, BUSY = "process.run_delay_share", "process.busy_cores"


class Timed(Protocol):
    """One call: what came in, and how long it took."""

    @property
    def signature(self) -> str: ...

    @property
    def call_s(self) -> float: ...


class Counters(Protocol):
    def read(self) -> dict[str, Metric]: ...


class Sampler:
    def __init__(
        self,
        counters: Counters,
        num_cores: int,
        clock: Callable[[], float] = monotonic,
        cpu_clock: Callable[[], float] = process_time,
    ) -> None:
        self._counters, self._num_cores = counters, num_cores
        self._clock, self._cpu_clock = clock, cpu_clock
        self._neighbours = Neighbours(num_cores)
        self._last_s = clock()
        self._signature: str | None = None
        self._cpu_s = cpu_clock()
        self.cost_s = 0.0

    def take(
        self,
        plan: str,
        trial: str | None,
        timings: Iterable[tuple[str, Timed]],
        held_bytes: int,
    ) -> Snapshot:
        """`timings` are the calls since the last one, each with its plan's fingerprint."""
        start_s, cost_s = self._clock(), thread_time()
        readings = self._counters.read()
        awake = start_s - self._last_s < ASLEEP_S
        self._last_s = start_s
        before = self._neighbours.count
        now = before
        if awake:
            now = self._neighbours.update(used=self._used(readings), ready=_ready(readings))
        calls: dict[tuple[str, str], list[float]] = defaultdict(list)
        busy: Counter[str] = Counter()
        for fingerprint, timing in timings:
            calls[fingerprint, timing.signature].append(timing.call_s)
            busy[timing.signature] += timing.call_s  # type: ignore[assignment]
        if busy:
            self._signature = busy.most_common(1)[0][0]
        snapshot = Snapshot(
            at_s=start_s,
            plan=plan,
            trial=trial,
            situation=self._situation(self._signature, now),
            samples=tuple(
                Sample(
                    plan=fingerprint,
                    situation=Situation(signature=signature, neighbours=now),
                    seconds=tuple(seconds),
                )
                for (fingerprint, signature), seconds in calls.items()
                if awake and before == now  # calls on both sides of a change tell of neither
            ),
            cpu_s=self._cpu_per_call(sum(map(len, calls.values())), alone=len(calls) == 1),
            held_bytes=held_bytes,
            readings=readings,
        )
        self.cost_s += thread_time() - cost_s
        return snapshot

    def _used(self, readings: dict[str, Metric]) -> float | None:
        share = _value(readings, OTHERS)
        return None if share is None else share * self._num_cores

    def _situation(self, signature: str | None, neighbours: int) -> Situation | None:
        return (signature and Situation(signature=signature, neighbours=neighbours)) or None

    def _cpu_per_call(self, calls: int, *, alone: bool) -> float | None:
        before, self._cpu_s = self._cpu_s, self._cpu_clock()
        return (self._cpu_s - before) / calls if calls and alone else None


def _ready(readings: dict[str, Metric]) -> float | None:
    """Threads of others that run or could: all, less ours and the one that reads."""
    runnable, busy = _value(readings, RUNNABLE), _value(readings, BUSY)
    if runnable is None or busy is None:
        return None
    return runnable - 1 - wanted_by_us(busy, _value(readings, RUN_DELAY) or 0.0)


def _value(readings: dict[str, Metric], name: str) -> float | None:
    metric = readings.get(name)
    return None if metric is None else metric.value
