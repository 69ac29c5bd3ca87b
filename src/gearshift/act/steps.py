"""The hot path's pieces: a plan for one signature as a flat tuple of bound steps.

No logging, no look-ups by name, no lock in here.
"""

from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from math import isfinite
from typing import Any

import torch
from numpy import errstate, vdot

from gearshift.act.backends.protocol import Executable
from gearshift.act.engines.protocol import Engine
from gearshift.act.openmp import on_threads, sparing
from gearshift.ir.topology import CALLER

Step = Callable[[list[Any]], None]
MAX_MARKS = 256


@dataclass(frozen=True, slots=True, kw_only=True)
class Steps:
    """Values live in one list: the call's leaves, then `rest`, with sizes and constants set."""

    run: tuple[Step, ...]
    regions: tuple[int, ...]
    """For each step the region it belongs to, for naming the culprit."""
    rest: tuple[Any, ...]
    outputs: tuple[int, ...]
    elsewhere: Mapping[int, int]
    """For each region on another engine, where the job is kept, and then when it ran."""
    marks: deque[tuple[list[float], list[Any]]] = field(
        default_factory=lambda: deque(maxlen=MAX_MARKS)
    )
    """For each of the last calls when it began and when each step ended; and who worked on each
    region that is elsewhere, and when."""


class Unfit(Exception):
    """These inputs are of a kind only the model itself is right for."""


@dataclass(frozen=True, slots=True)
class IndexCheck:
    """Numbers, read off the call's values, that must be at least `low` and below `high`."""

    read: Callable[[list[Any]], torch.Tensor]
    low: int
    high: int

    def passes(self, values: list[Any]) -> bool:
        numbers = self.read(values).numpy()
        return numbers.size == 0 or bool(numbers.min() >= self.low and numbers.max() < self.high)


def guarding(floats: tuple[int, ...], indices: Sequence[IndexCheck]) -> Step | None:
    """A step that raises Unfit if a float is not finite, or an index is outside its table."""
    if not floats and not indices:
        return None

    def step(values: list[Any]) -> None:
        for i in floats:
            if not _is_finite(values[i]):
                raise Unfit
        for check in indices:
            if not check.passes(values):
                raise Unfit

    return step


def _is_finite(tensor: torch.Tensor) -> bool:
    """On this thread alone: torch's own sum would leave its idle threads spinning beside the call.
    The product with itself is read fastest where one thread does it; large numbers make it
    infinite, too."""
    if tensor.dtype is torch.bfloat16:
        return isfinite(tensor.sum())
    array = tensor.detach().numpy()
    with errstate(all="ignore"):
        alone = tensor.dtype is torch.float32 and isfinite(vdot(array, array))
        return alone or isfinite(array.sum())


def bind(
    built: Sequence[tuple[Executable, Engine]],
    home: Mapping[str, int],
    last_read: Mapping[str, int],
    elsewhere: Mapping[int, int],
    others: Callable[[], int],
) -> tuple[tuple[Step, ...], tuple[int, ...]]:
    """Steps for regions in run order. What runs on another engine is started as soon as it can be
    and waited for when it is first needed, so that independent regions overlap. Torch itself leaves
    others their cores; beside engines of our own it works alone, since its threads go on waiting
    busily for a while."""
    beside = any(engine.spec.name != CALLER for _, engine in built)
    steps: list[tuple[Step, int]] = []
    waiting: dict[str, tuple[Step, int]] = {}

    def wait_for(names: Sequence[str]) -> None:
        for name in names:
            if name in waiting:
                pending = waiting[name]
                steps.append(pending)
                for key in [key for key, value in waiting.items() if value is pending]:
                    del waiting[key]

    for index, (built_region, engine) in enumerate(built):
        following = built[index + 1][0] if index + 1 < len(built) else None
        if following is not None and following.ahead is not None:
            steps.append((_calling(following.ahead), index))
        wait_for(built_region.inputs)
        reads = tuple(home[name] for name in (*built_region.inputs, *built_region.sizes))
        writes = tuple(home[name] for name in built_region.outputs)
        done = tuple(home[n] for n in built_region.inputs if last_read.get(n) == index)
        if engine.spec.name == CALLER:
            run = built_region.run
            if built_region.by_torch:
                run = on_threads(1, run) if beside else sparing(run, others)
            steps.append((_here(run, reads, writes, done), index))
        else:
            start, finish = _there(engine, built_region.run, reads, writes, elsewhere[index])
            steps.append((start, index))
            waiting.update(dict.fromkeys(built_region.outputs, (finish, index)))
    wait_for(list(waiting))
    return tuple(step for step, _ in steps), tuple(index for _, index in steps)


def _calling(ahead: Callable[[], None]) -> Step:
    def step(values: list[Any]) -> None:
        ahead()

    return step


def _here(
    run: Callable[..., Sequence[Any]],
    reads: tuple[int, ...],
    writes: tuple[int, ...],
    done: tuple[int, ...],
) -> Step:
    """Runs on the calling thread; values nobody reads any more are let go."""

    def step(values: list[Any]) -> None:
        results = run(*[values[i] for i in reads])
        for i in done:
            values[i] = None
        for i, result in zip(writes, results, strict=True):
            values[i] = result

    return step


def _there(
    engine: Engine,
    run: Callable[..., Sequence[Any]],
    reads: tuple[int, ...],
    writes: tuple[int, ...],
    job_at: int,
) -> tuple[Step, Step]:
    """Starts on another engine; then takes the results, and leaves who worked when in the job's
    place."""

    def start(values: list[Any]) -> None:
        values[job_at] = engine.start(run, [values[i] for i in reads])

    def finish(values: list[Any]) -> None:
        job = values[job_at]
        for i, result in zip(writes, job.result(), strict=True):
            values[i] = result
        values[job_at] = job.stretches

    return start, finish
