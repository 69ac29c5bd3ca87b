"""Measures regions side by side, taking turns, so that noise hits all alike.

A recipe: uses the runtime's parts; decides nothing.
"""

import logging
import statistics
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from time import perf_counter
from typing import Any

from gearshift.act.backends import Executable
from gearshift.act.compile import build_variant
from gearshift.act.engines import Engine
from gearshift.act.verify import compare, feeds, known_values
from gearshift.capture.program import Fragment
from gearshift.errors import GearshiftError
from gearshift.ir.measurement import Measurement, Metric, Source
from gearshift.ir.region import identity
from gearshift.plan import Plan, Region, Rewrite
from gearshift.runtime import Runtime

log = logging.getLogger("gearshift")
Progress = Callable[[str], None]
MIN_CALLS = 5


def take_turns(calls: Mapping[str, Callable[[], Any]], seconds: float) -> dict[str, list[float]]:
    """Seconds of each call, in rotating order, until the time is up or each has had its turns."""
    names = list(calls)
    latencies: dict[str, list[float]] = {name: [] for name in names}
    for name in names:
        calls[name]()
    end_s = perf_counter() + seconds
    turn = 0
    while names and (perf_counter() < end_s or turn < MIN_CALLS):
        for name in names[turn % len(names) :] + names[: turn % len(names)]:
            start_s = perf_counter()
            calls[name]()
            latencies[name].append(perf_counter() - start_s)
        turn += 1
    return latencies


def profile_regions(
    runtime: Runtime,
    plan: Plan,
    rewrites: Sequence[Rewrite],
    *,
    seconds: float,
    progress: Progress,
) -> Iterator[Measurement]:
    """Each region of the plan, on its engine, under each setting that can run it."""
    runnable = runtime.space.runnable
    for fragment in runtime.program.fragments:
        mine = [region for region in plan.regions if region.name in fragment.graph.position]
        values = known_values(fragment, mine, fragment.example)
        for region in mine:
            progress(f"region {region.name}")
            fitting = [r for r in rewrites if frozenset(region.ops) <= runnable[r.backend]]
            yield from _profile_region(runtime, fragment, region, fitting, values, seconds)


def _run_on(engine: Engine, executable: Executable, inputs: Sequence[Any]) -> Any:
    return engine.start(executable.run, inputs).result()


def _profile_region(
    runtime: Runtime,
    fragment: Fragment,
    region: Region,
    rewrites: Sequence[Rewrite],
    values: dict[str, Any],
    seconds: float,
) -> Iterator[Measurement]:
    built: dict[str, tuple[float, float, int]] = {}
    calls: dict[str, Callable[[], Any]] = {}
    for rewrite in rewrites:
        start_s = perf_counter()
        as_set = Region(ops=region.ops, engine=region.engine, rewrite=rewrite)
        what = f"region {region.name} by {rewrite}"
        try:
            variant = build_variant(fragment, (as_set,), fragment.example, runtime.open_engine)
            (executable,), (engine,) = variant.executables, variant.engines
            inputs, expected = feeds(executable, values)
            got = list(engine.start(executable.run, inputs).result())
            error = compare(expected, got, runtime.tolerance, what)
        except GearshiftError as refusal:
            log.warning("%s: refused: %s", what, str(refusal))
            continue
        built[str(rewrite)] = (perf_counter() - start_s, error, executable.held_bytes)
        calls[str(rewrite)] = partial(_run_on, engine, executable, inputs)
    for name, latencies in take_turns(calls, seconds * len(calls)).items():
        build_s, error, held_bytes = built[name]
        yield Measurement(
            region=identity(fragment.graph, region.ops),
            ops=region.ops,
            engine=region.engine,
            rewrite=name,
            latency_s=statistics.median(latencies),
            held_bytes=Metric(value=held_bytes, source=Source.MODELLED),
            max_error=error,
            build_s=build_s,
        )
