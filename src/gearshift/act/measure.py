"""One region by itself: built, compared with the model, timed.

Must not know who asks, or what is made of it.
"""

import logging
import statistics
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from random import Random
from time import perf_counter
from typing import Any

from gearshift.act.backends import Executable
from gearshift.act.compile import OpenEngine, build_variant
from gearshift.act.engines import Engine
from gearshift.act.openmp import on_threads
from gearshift.act.verify import Tolerance, compare, feeds, known_values
from gearshift.capture.program import Fragment
from gearshift.errors import CompileError, GearshiftError
from gearshift.ir.measurement import Measurement, Metric, Source
from gearshift.ir.region import identity
from gearshift.plan.plan import Region

log = logging.getLogger("gearshift")
MIN_CALLS = 5


def take_turns(calls: Mapping[str, Callable[[], Any]], seconds: float) -> dict[str, list[float]]:
    """Seconds of each call, until the time is up or each has had its turns. In an order drawn anew
    each turn: who always follows the same other always finds the same in the caches."""
    names, order = list(calls), Random(0)
    latencies: dict[str, list[float]] = {name: [] for name in names}
    for name in names:
        calls[name]()
    end_s = perf_counter() + seconds
    turn = 0
    while names and (perf_counter() < end_s or turn < MIN_CALLS):
        for name in order.sample(names, len(names)):
            start_s = perf_counter()
            calls[name]()
            latencies[name].append(perf_counter() - start_s)
        turn += 1
    return latencies


@dataclass(frozen=True, slots=True, kw_only=True)
class Ready:
    """A region that can be called by itself, on what it gets from the example."""

    call: Callable[[], Any]
    build_s: float
    max_error: float
    held_bytes: int


def make_ready(
    fragment: Fragment,
    region: Region,
    values: Mapping[str, Any],
    open_engine: OpenEngine,
    tolerance: Tolerance,
) -> Ready:
    """`values` are those at its boundary. Raises GearshiftError if it cannot be built or is
    wrong."""
    start_s = perf_counter()
    variant = build_variant(fragment, (region,), fragment.example, open_engine)
    (executable,), (engine,) = variant.executables, variant.engines
    inputs, expected = feeds(executable, values)
    what = f"region {region.name} by {region.setting}"
    try:
        got = list(run_on(engine, executable, inputs))
    except GearshiftError:
        raise
    except Exception as failure:
        reason = " ".join(str(failure).split())[:200]
        raise CompileError(
            f"{what} fails when run: {type(failure).__name__}: {reason}"
        ) from failure
    error = compare(expected, got, tolerance, what)
    return Ready(
        call=partial(run_on, engine, executable, inputs),
        build_s=perf_counter() - start_s,
        max_error=error,
        held_bytes=executable.held_bytes,
    )


def run_on(engine: Engine, executable: Executable, inputs: Sequence[Any]) -> Any:
    return engine.start(executable.run, inputs).result()


def measurement(
    fragment: Fragment, region: Region, ready: Ready, latencies: Sequence[float]
) -> Measurement:
    return Measurement(
        region=identity(fragment.graph, region.ops),
        ops=region.ops,
        engine=region.engine,
        rewrite=region.setting,
        latency_s=statistics.median(latencies),
        held_bytes=Metric(value=ready.held_bytes, source=Source.MODELLED),
        max_error=ready.max_error,
        build_s=ready.build_s,
    )


def measure(
    fragment: Fragment,
    regions: Sequence[Region],
    open_engine: OpenEngine,
    tolerance: Tolerance,
    *,
    seconds: float,
    num_threads: int,
) -> Iterator[Measurement]:
    """Each by itself, for so long; those that cannot be built, or are wrong, are left out.
    `num_threads` are for what takes as many as its thread allows."""
    values = known_values(fragment, regions, fragment.example)
    for region in regions:
        try:
            ready = make_ready(fragment, region, values, open_engine, tolerance)
        except GearshiftError as refusal:
            log.info("region %s by %s: refused: %s", region.name, region.setting, refusal)
            continue
        call = ready.call if region.threads is not None else on_threads(num_threads, ready.call)
        (latencies,) = take_turns({region.setting: call}, seconds).values()
        yield measurement(fragment, region, ready, latencies)
