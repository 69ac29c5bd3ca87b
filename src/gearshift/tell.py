"""What a runtime went through, as a story to draw.

A recipe: asks everybody who knows something. Must not know how it is drawn.
"""

from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime
from itertools import pairwise
from pathlib import Path
from statistics import fmean, median
from typing import TYPE_CHECKING, Any

import torch

from gearshift.act.executor import Timing, lasted_s
from gearshift.adaptive import costs, explain
from gearshift.errors import UsageError
from gearshift.ir.measurement import Metric
from gearshift.ir.snapshot import Snapshot
from gearshift.ir.topology import CALLER
from gearshift.loop import Loop
from gearshift.observe.sampler import BUSY, OTHERS, RUN_DELAY, mean_parts, shares_of
from gearshift.observe.store import machine_fields, versions_key
from gearshift.plan import render
from gearshift.plan.decision import TRIAL
from gearshift.plan.plan import Plan
from gearshift.plan.rewrite import EAGER
from gearshift.tell_regions import boxes_of, cuts_of, plans_of, strides_of
from gearshift.view.story import (
    Call,
    Cost,
    Crowd,
    Reading,
    Series,
    Span,
    Story,
    towards_end,
)

if TYPE_CHECKING:
    from gearshift.live import Called, Run
    from gearshift.live import Series as Calls
    from gearshift.runtime import Runtime

WHOLE = "the model"
NOW_CALLS = 20
"""The last few seconds."""
COUNTERS = {
    OTHERS: "others' share of the cores",
    RUN_DELAY: "our run delay, share",
    BUSY: "cores we keep busy",
}


def story_of(
    runtime: "Runtime",
    model: str = "",
    *,
    run: "Run | None" = None,
    facts: Mapping[str, str] | None = None,
) -> Story:
    """`run` is what whoever called the runtime kept; else what the loop saw stands for it."""
    loop, start_s, plan = runtime._loop, runtime.began_s, runtime.plan
    seen = [] if loop is None else list(loop.history)
    calls = _calls(runtime, seen, start_s) if run is None else _calls_of(run.ours, start_s)
    recent = recent_calls(runtime)
    mine = [timing for other, timing in recent if other == plan]
    eager = runtime._serving.eager.executor.plan
    changes = runtime._changes
    return Story(
        model=model or type(runtime.program.eager).__name__,
        facts={**_facts(runtime), **(facts or {})},
        calls=calls,
        end_s=_end_s(calls),
        reference=runtime.program.reference_name,
        reference_s=_reference_s(runtime) if run is None else run.theirs.median_s,
        reference_calls=[] if run is None else _calls_of(run.theirs, start_s),
        reference_end_s=None if run is None else run.theirs.end().median_s,
        cuts=cuts_of(runtime, seen, start_s),
        strides=strides_of(runtime, start_s),
        crowds=_crowds(seen, start_s) or ([] if run is None else _stays(run, start_s)),
        decisions=runtime.decisions,
        num_decisions=changes.num_decisions,
        num_swaps=changes.num_swaps,
        boxes=boxes_of(runtime, mine),
        spans=[spans_of(other, timing, start_s, eager) for other, timing in recent],
        call_s=fmean(timing.call_s for timing in mine) if mine else None,
        between_s=_between_s(mine),
        one_call=_middle([spans_of(plan, timing, start_s, eager) for timing in mine]),
        costs=costs_of(runtime),
        readings=[] if loop is None else list(_readings(loop)),
        counters=_counters(seen, start_s),
        notes=[f"not captured: {line}" for line in runtime.program.uncaptured],
    )


def recent_calls(runtime: "Runtime") -> list[tuple[Plan, Timing]]:
    """The last ones that were timed, each with its plan. Where no loop asks for them, asking now
    and then keeps more of them."""
    if runtime._loop is None:
        deque(runtime._serving.timings(), maxlen=0)
    return list(runtime._serving.recent)


def shares_now(runtime: "Runtime") -> dict[str, float]:
    """By engine, of the work of the regions that the plan in force divides."""
    last = [timing for plan, timing in recent_calls(runtime) if plan == runtime.plan][-NOW_CALLS:]
    return shares_of(mean_parts([timing.parts for timing in last]).values())


def write(path: Path, text: str) -> None:
    try:
        path.write_text(text, encoding="utf-8")
    except OSError as error:
        raise UsageError(f"cannot write {str(path)!r}: {error.strerror}") from None


def today() -> str:
    return f"{datetime.now(UTC):%Y-%m-%d}"


def machine() -> dict[str, Any]:
    """What a reader needs to tell these numbers from another machine's."""
    versions = dict(entry.split("=", 1) for entry in versions_key().split(" "))
    return {**machine_fields(), "versions": versions}


def machine_lines(found: Mapping[str, Any]) -> dict[str, str]:
    """The same for people, without what is not there."""
    told = {"cpu": found["cpu"], "cores": found["cores"], "memory": f"{found['memory_gib']} GiB"}
    if found["cpu_quota"] != "none":
        told["cpu quota"] = f"{found['cpu_quota']} cores"
    return told | {name: text for name, text in found["versions"].items() if text != "none"}


def explained(runtime: "Runtime") -> str:
    """The plan in force, who decides, what led to it, what could not be captured."""
    program, loop = runtime.program, runtime._loop
    lines = [render(runtime.plan, program.graph), f"policy: {deciding(runtime)}"]
    lines += [f"{cost.name}: {cost.text}" for cost in costs_of(runtime)]
    lines += [f"not captured: {line}" for line in program.uncaptured]
    lines += [f"note: {note}" for f in program.fragments for note in f.notes]
    refused = [(what, why) for v in runtime._serving.variants for what, why in v.refusals.items()]
    lines += [f"note: calls of {what} run eagerly: {why}" for what, why in refused]
    lines += [f"quarantined: {n}: {why}" for n, why in runtime._pool.quarantined.items()]
    lines += explain(loop) if loop is not None else []
    lines += map(str, runtime.decisions)
    return "\n".join(lines)


def deciding(runtime: "Runtime") -> str:
    """Who decides; if that is not who was asked for, both."""
    asked, loop = runtime.policy, runtime._loop
    decides = asked if loop is None else loop.answer.policy or asked
    return asked if decides == asked else f"{decides}, in place of {asked}"


def _facts(runtime: "Runtime") -> dict[str, str]:
    told = {"made": f"{datetime.now(UTC):%Y-%m-%d %H:%M} UTC", **machine_lines(machine())}
    told["policy"] = deciding(runtime)
    told["torch seed"] = str(torch.initial_seed())
    told["capture"] = f"{runtime.program.capture_s:.1f} s"
    return told


def _calls_of(series: "Calls", start_s: float) -> list[Call]:
    return [
        Call(at_s=call.at_s - start_s, call_s=call.call_s, plan=call.plan) for call in series.calls
    ]


def _end_s(calls: Sequence[Call]) -> float | None:
    return median_s(towards_end(calls)) if calls else None


def median_s(calls: Sequence["Call | Called"]) -> float:
    return median(call.call_s for call in calls)


def _calls(runtime: "Runtime", seen: Sequence[Snapshot], start_s: float) -> list[Call]:
    """The mean of those between two looks."""
    names = _names(runtime)
    return [
        Call(
            at_s=snapshot.at_s - start_s,
            call_s=snapshot.served_s / snapshot.num_calls,
            plan=TRIAL if snapshot.trial else names.get(snapshot.plan, snapshot.plan),
        )
        for snapshot in seen
        if snapshot.num_calls
    ]


def _names(runtime: "Runtime") -> dict[str, str]:
    return {fingerprint: plan.summary for fingerprint, plan in plans_of(runtime).items()}


def _reference_s(runtime: "Runtime") -> float | None:
    """As it was measured lately in the situation there is now."""
    loop = runtime._loop
    if loop is None or loop.seen is None or loop.seen.situation is None:
        return None
    eager = runtime._serving.eager.executor.plan.fingerprint
    found = loop.guard.model.measured(loop.seen.situation, eager)
    return None if found is None else found.mean_s


def _crowds(seen: Sequence[Snapshot], start_s: float) -> list[Crowd]:
    """Stretches with the same number of neighbours; each lasts until another is seen."""
    counts = [(s.at_s - start_s, s.situation.neighbours) for s in seen if s.situation is not None]
    starts = [counts[0]] if counts else []
    starts += [after for before, after in pairwise(counts) if before[1] != after[1]]
    ends_s = [at_s for at_s, _ in starts[1:]] + [at_s for at_s, _ in counts[-1:]]
    return [
        Crowd(begin_s=begin_s, end_s=end_s, neighbours=neighbours)
        for (begin_s, neighbours), end_s in zip(starts, ends_s, strict=True)
    ]


def _stays(run: "Run", start_s: float) -> list[Crowd]:
    """Of a neighbour that was asked for, where no loop looks out for others."""
    pairs = zip(run.stay_s[::2], run.stay_s[1::2], strict=True)
    return [Crowd(begin_s=a - start_s, end_s=b - start_s, neighbours=1) for a, b in pairs]


def _between_s(timings: Sequence[Timing]) -> float:
    """What of a call is spent in no region, where regions were timed."""
    left_s = [
        timing.call_s - lasted_s(s for stretches in timing.spans.values() for s in stretches)
        for timing in timings
        if timing.spans
    ]
    return max(0.0, fmean(left_s)) if left_s else 0.0


def spans_of(plan: Plan, timing: Timing, start_s: float, eager: Plan) -> list[Span]:
    """In the order they began. The model itself has no regions: it is one of its own. None of a
    call whose regions were not timed."""
    known = {region.name: region for region in plan.regions}
    whole = (CALLER, timing.at_s, timing.at_s + timing.call_s, 1.0)
    ran = timing.spans or ({WHOLE: (whole,)} if plan == eager else {})
    spans = [
        Span(
            region=name,
            engine=engine,
            backend=known[name].rewrite.backend if name in known else EAGER.backend,
            rewrite=known[name].setting if name in known else str(EAGER),
            begin_s=begin_s - start_s,
            end_s=end_s - start_s,
            share=share,
        )
        for name, stretches in ran.items()
        for engine, begin_s, end_s, share in stretches
        if end_s > begin_s  # it was at work
    ]
    return sorted(spans, key=lambda span: span.begin_s)


def _middle(calls: Sequence[Sequence[Span]]) -> Sequence[Span]:
    """The middle one by length, of those that ran all that the last one did."""
    last = [spans for spans in calls if spans and len(spans) == len(calls[-1])]
    last.sort(key=lambda spans: max(s.end_s for s in spans) - min(s.begin_s for s in spans))
    return last[len(last) // 2] if last else ()


def costs_of(runtime: "Runtime") -> list[Cost]:
    """Where time and memory go beside the regions."""
    found = {} if runtime._loop is None else costs(runtime._loop)
    memory = runtime.memory
    found["memory"] = (
        f"{memory.weight_bytes / 1e6:.1f} MB weights,"
        f" {memory.region_bytes / 1e6:.1f} MB in compiled regions (modelled)"
    )
    if runtime.coverage is not None:
        found["captured"] = f"{runtime.coverage:.1%} of the time of all calls"
    audit = runtime._audit
    if audit.checked:
        found["live calls checked"] = f"{audit.checked}, worst error {audit.worst_error:.1g}"
    switches = runtime._serving.strides.num_switches
    if switches:
        found["settings of layers changed"] = f"{switches} times within calls under way"
    return [Cost(name=name, text=text) for name, text in found.items()]


def _readings(loop: Loop) -> Iterator[Reading]:
    last = {} if loop.seen is None else loop.seen.readings
    for row in loop.sampler.describe():
        metric = last.get(row.name)
        known = metric is not None and metric.value is not None
        yield Reading(
            name=row.name,
            text=_number(metric, str(row.unit)) if metric is not None and known else "",
            source=str(row.source if metric is None else metric.source),
            origin=row.origin,
        )


def _number(metric: Metric, unit: str) -> str:
    value = metric.value or 0.0
    if unit == "share":
        return f"{value:.1%}"
    for factor, prefix in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
        if abs(value) >= factor:
            return f"{value / factor:.3g} {prefix}{unit}"
    return f"{value:.3g} {unit}"


def _counters(seen: Sequence[Snapshot], start_s: float) -> list[Series]:
    series = [_series(name, title, seen, start_s) for name, title in COUNTERS.items()]
    neighbours = tuple(
        (s.at_s - start_s, float(s.situation.neighbours)) for s in seen if s.situation is not None
    )
    return [Series(name="neighbours", points=neighbours), *series, *_shares(seen, start_s)]


def _shares(seen: Sequence[Snapshot], start_s: float) -> list[Series]:
    """Of the engines that a region was divided over, as they moved."""
    names = dict.fromkeys(name for snapshot in seen for name in snapshot.shares)
    return [
        Series(
            name=f"share of {name}",
            points=tuple((s.at_s - start_s, s.shares[name]) for s in seen if name in s.shares),
        )
        for name in names
    ]


def _series(name: str, title: str, seen: Sequence[Snapshot], start_s: float) -> Series:
    found = [(s.at_s - start_s, s.readings[name].value) for s in seen if name in s.readings]
    points = tuple((at_s, value) for at_s, value in found if value is not None)
    return Series(name=title, points=points)
