"""Takes snapshots: what came in, how long it took, who else was there.

Must not know what is made of them.
"""

import math
import os
import re
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from time import monotonic
from typing import Protocol

from gearshift.ir.measurement import Metric
from gearshift.ir.roofline import Roofline
from gearshift.ir.snapshot import Sample, Situation, Snapshot
from gearshift.ir.work import Work
from gearshift.observe.hal.counters import Description
from gearshift.observe.neighbours import Neighbours, SpareCore, wanted_by_us

ASLEEP_S = 1.0
"""After a pause of so long this process was stopped, and what was counted tells of nothing."""
NEWS_S = 0.08
"""Counters asked sooner tell what they told last, which confirms nothing."""
OTHERS, RUNNABLE = "cpu.others_share", "cpu.runnable"
OTHERS_ON_CORE = re.compile(r"core\.(\d+)\.others_share")
FADE, CLEARLY, MAX_SIGNATURES = 0.7, 1.5, 64
MANY = 8
"""More sizes than this are told apart only roughly."""
NUMBER = re.compile(r"(?<![\w.])\d+(?:\.\d+)?(?:e[+-]?\d+)?")
MOSTLY = 0.5
RUN_DELAY, BUSY, ENERGY = "process.run_delay_share", "process.busy_cores", "energy.cpu_j"


class Label(Protocol):
    @property
    def signature(self) -> str: ...

    @property
    def work(self) -> Work | None: ...


class Timed(Protocol):
    """One call: what came in, when, how long it took, and each region's part of it."""

    @property
    def label(self) -> Label: ...

    @property
    def at_s(self) -> float: ...

    @property
    def call_s(self) -> float: ...

    @property
    def region_s(self) -> Mapping[str, float]: ...

    @property
    def parts(self) -> Mapping[str, Mapping[str, tuple[float, float]]]: ...


class Counters(Protocol):
    def read(self) -> dict[str, Metric]: ...

    def note(self, work: Work) -> None: ...

    def use(self, roofline: Roofline) -> None: ...

    def describe(self) -> tuple[Description, ...]: ...

    def watch_thread(self, name: str, thread_id: int) -> None: ...

    def forget_thread(self, name: str) -> None: ...

    def close(self) -> None: ...


class Sampler:
    def __init__(
        self,
        counters: Counters,
        num_cores: int,
        *,
        signature: str | None = None,
        clock: Callable[[], float] = monotonic,
    ) -> None:
        """`signature` is what calls will be like, before there are any."""
        self._counters, self._num_cores = counters, num_cores
        self._clock = clock
        self._neighbours, self._spare = Neighbours(num_cores), SpareCore()
        self._last_s = clock()
        self._signature = signature
        self._threads: dict[str, int] = {}
        self._lately: Counter[str] = Counter()
        self._readings: dict[str, Metric] = {}
        self._blurred = self._disturbed = False
        self._energy_j: float | None = None
        self._changed_s, self._taken_s = -math.inf, self._last_s
        self._served = (0, 0.0)
        self._signatures: set[str] = set()

    def use(self, roofline: Roofline) -> None:
        self._counters.use(roofline)

    def describe(self) -> tuple[Description, ...]:
        """What each reading stands for, and where it comes from."""
        return self._counters.describe()

    def follow(self, threads: Mapping[str, int]) -> None:
        """From here on what these threads wait for a core is read, too: `thread.<name>...`."""
        if threads == self._threads:
            return
        for name in self._threads.keys() - threads.keys():
            self._counters.forget_thread(name)
        for name, number in threads.items():
            if self._threads.get(name) != number:
                self._counters.watch_thread(name, number)
        self._threads = dict(threads)

    def close(self) -> None:
        self._counters.close()

    @property
    def neighbours(self) -> int:
        """How many there are, as far as the last glances told."""
        return self._neighbours.count

    @property
    def spare_core(self) -> int | None:
        """The one they use least, while they want some of the cores but not all."""
        return self._spare.core

    @property
    def doubtful(self) -> bool:
        """Whether the last glance said that somebody came or went, but one is not enough."""
        return self._neighbours.doubtful

    def glance(self, *, disturbed: bool = False) -> bool:
        """Reads the counters; True if somebody came or went. `disturbed` tells whether other work
        of ours, such as a build, ran since the last one."""
        now_s = self._clock()
        self._disturbed = self._disturbed or disturbed
        if 0 <= now_s - self._last_s < NEWS_S and self._readings:
            return False
        disturbed, self._disturbed = self._disturbed, False
        awake = now_s - self._last_s < ASLEEP_S
        self._last_s = now_s
        readings = self._readings = self._counters.read()
        energy_j = _value(readings, ENERGY)
        self._energy_j = None if energy_j is None else (self._energy_j or 0.0) + energy_j
        before = self._neighbours.count
        if awake:
            used, ready = self._used(readings), self._ready(readings)
            self._neighbours.update(used=used, ready=ready, disturbed=disturbed)
        else:
            self._neighbours.wake()
        self._spare.update(self._neighbours.count, self._used_by_core(readings))
        changed = self._neighbours.count != before
        if changed or not awake:
            self._changed_s = now_s
        self._blurred = self._blurred or changed or disturbed or not awake
        return changed

    def take(
        self,
        plan: str,
        trial: str | None,
        timings: Iterable[tuple[str, Timed]],
        *,
        served: tuple[int, float] = (0, 0.0),
        held_bytes: int = 0,
        ready: Sequence[str] = (),
    ) -> Snapshot:
        """What the glances since the last one told. `timings` are the last calls since, each with
        its plan's fingerprint; those on both sides of a change, or beside other work of ours, tell
        of neither. `served` is how many calls there ever were, and the time in them."""
        neighbours = self._neighbours.count
        blurred, self._blurred = self._blurred, False
        calls: dict[tuple[str, str], list[Timed]] = defaultdict(list)
        busy: Counter[str] = Counter()
        for fingerprint, timing in timings:
            signature = self._filed(timing.label.signature)
            busy[signature] += timing.call_s  # type: ignore[assignment]
            if timing.at_s >= self._changed_s:
                calls[fingerprint, signature].append(timing)
        self._signature = self._usual(busy)
        for group in calls.values():
            self._note_work(group)
        (before, before_s), self._served = self._served, served
        num_calls, served_s = served[0] - before, served[1] - before_s
        samples = tuple(
            _sample(fingerprint, Situation(signature=signature, neighbours=neighbours), group)
            for (fingerprint, signature), group in calls.items()
            if not blurred
        )
        return Snapshot(
            at_s=self._last_s,
            plan=plan,
            trial=trial,
            situation=_situation(self._signature, neighbours),
            samples=samples,
            energy_j=self._per_call(num_calls, served_s, len(calls)),
            served_s=served_s,
            num_calls=num_calls,
            held_bytes=held_bytes,
            ready=tuple(ready),
            shares=shares_of(p for s in samples if s.plan == plan for p in s.parts.values()),
            readings=self._readings,
        )

    def _filed(self, signature: str) -> str:
        """Where sizes are many, those about as large are one situation: else hardly any would come
        often enough to be known."""
        if len(self._signatures) <= MANY:
            self._signatures.add(signature)
        return signature if len(self._signatures) <= MANY else about(signature)

    def _per_call(self, num_calls: int, served_s: float, num_kinds: int) -> float | None:
        """Only where calls of one kind filled most of the time: else it would be charged for what
        the machine draws while it waits."""
        energy_j, self._energy_j = self._energy_j, None
        lasted_s, self._taken_s = self._last_s - self._taken_s, self._last_s
        if energy_j is None or num_calls == 0 or num_kinds != 1:
            return None
        return energy_j / num_calls if served_s > MOSTLY * lasted_s else None

    def _usual(self, busy: Mapping[str, float]) -> str | None:
        """The signature that takes most of the time, lately; another one only if it takes clearly
        more: where sizes mix, they are one situation."""
        if busy:
            for signature in self._lately:
                self._lately[signature] *= FADE  # type: ignore[assignment]
            self._lately.update(busy)  # adds
        if not self._lately:
            return self._signature
        most, most_s = self._lately.most_common(1)[0]
        now_s = self._lately.get(self._signature or "", 0.0)
        for rare, _ in self._lately.most_common()[MAX_SIGNATURES:]:
            del self._lately[rare]
        return most if most_s > CLEARLY * now_s else self._signature

    def _used(self, readings: dict[str, Metric]) -> float | None:
        share = _value(readings, OTHERS)
        return None if share is None else share * self._num_cores

    def _used_by_core(self, readings: dict[str, Metric]) -> dict[int, float]:
        return {
            int(core[1]): metric.value
            for name, metric in readings.items()
            if metric.value is not None and (core := OTHERS_ON_CORE.fullmatch(name))
        }

    def _ready(self, readings: dict[str, Metric]) -> float | None:
        """Threads of others that run or could: all, less ours and the one that reads. Where we
        have only some of the machine's cores, who waits for the others is not our neighbour."""
        runnable, busy = _value(readings, RUNNABLE), _value(readings, BUSY)
        if runnable is None or busy is None or self._num_cores < (os.cpu_count() or 1):
            return None
        return runnable - 1 - wanted_by_us(busy, _value(readings, RUN_DELAY) or 0.0)

    def _note_work(self, group: Sequence[Timed]) -> None:
        """For what can only be modelled."""
        work, seconds = group[0].label.work, sum(timing.call_s for timing in group)
        if work is not None:
            self._counters.note(replace(work, seconds=seconds / len(group)))


def _situation(signature: str | None, neighbours: int) -> Situation | None:
    return None if signature is None else Situation(signature=signature, neighbours=neighbours)


def _sample(fingerprint: str, situation: Situation, group: Sequence[Timed]) -> Sample:
    parts = [timing.region_s for timing in group]
    shared = [name for name in parts[0] if all(name in part for part in parts)]
    return Sample(
        plan=fingerprint,
        situation=situation,
        seconds=tuple(timing.call_s for timing in group),
        region_s={name: sum(part[name] for part in parts) / len(parts) for name in shared},
        parts=mean_parts([timing.parts for timing in group]),
        work=group[0].label.work,
    )


def shares_of(parts: Iterable[Mapping[str, tuple[float, float]]]) -> dict[str, float]:
    """By engine, over all regions that are divided."""
    divided = [done for done in parts if len(done) > 1]
    names = dict.fromkeys(name for engines in divided for name in engines)
    return {
        name: sum(engines.get(name, (0.0, 0.0))[0] for engines in divided) / len(divided)
        for name in names
    }


def mean_parts(
    calls: Sequence[Mapping[str, Mapping[str, tuple[float, float]]]],
) -> dict[str, dict[str, tuple[float, float]]]:
    """By region and engine the mean share and time; who was left out in a call did nothing."""
    sums: dict[str, dict[str, tuple[float, float]]] = defaultdict(dict)
    for region, engine, share, busy_s in (
        (region, engine, *done)
        for call in calls
        for region, engines in call.items()
        for engine, done in engines.items()
    ):
        before, before_s = sums[region].get(engine, (0.0, 0.0))
        sums[region][engine] = (before + share, before_s + busy_s)
    count = len(calls)
    return {
        region: {engine: (share / count, s / count) for engine, (share, s) in engines.items()}
        for region, engines in sums.items()
    }


def about(signature: str) -> str:
    """With every number rounded to a power of two, but for those in the names of types."""

    def rounded(found: re.Match[str]) -> str:
        number = float(found.group())
        return f"~{2.0 ** round(math.log2(number)):g}" if number > 0 else found.group()

    return NUMBER.sub(rounded, signature)


def _value(readings: dict[str, Metric], name: str) -> float | None:
    metric = readings.get(name)
    return None if metric is None else metric.value
