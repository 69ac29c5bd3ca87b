"""Rows as the flat fields of their tables, and back; fields no measurement gives are no row.

Must not know SQL or files.
"""

from dataclasses import astuple
from math import isfinite

from gearshift.ir.measurement import Metric, Source
from gearshift.observe.store.latency import Latency
from gearshift.observe.store.rows import (
    DecisionRow,
    PlanKey,
    PlanRow,
    RegionKey,
    RegionRow,
    is_amount,
)
from gearshift.observe.store.tables import Fields
from gearshift.plan.decision import Decision

MAX_TEXT, MAX_INT = 1 << 20, 1 << 63
UNAVAILABLE = Metric(value=None, source=Source.UNAVAILABLE)


def is_storable(key: Fields, values: Fields = ()) -> bool:
    """Whether SQLite takes the fields and gives the same ones back; a key has no gaps."""
    return None not in key and all(_is_storable(field) for field in (*key, *values))


def _is_storable(field: object) -> bool:
    if isinstance(field, str):
        return len(field) <= MAX_TEXT and field.encode(errors="replace").decode() == field
    if isinstance(field, float):
        return isfinite(field)
    return field is None or (isinstance(field, int) and abs(field) < MAX_INT)


def plan_fields(row: PlanRow) -> Fields:
    values = (*astuple(row.latency), row.max_error, row.seen_at_s)
    return (*astuple(row.key), row.fingerprint, row.text, *values)


def plan_row(fields: Fields) -> PlanRow | None:
    *key, fingerprint, text, count, mean_s, m2_s2, max_error, seen_at_s = fields
    machine, versions, graph, signature, context = key
    latency = Latency(count=count, mean_s=mean_s, m2_s2=m2_s2)
    if not latency.is_sound or not is_amount(max_error):
        return None
    return PlanRow(
        key=PlanKey(
            machine=machine, versions=versions, graph=graph, signature=signature, context=context
        ),
        fingerprint=fingerprint,
        text=text,
        latency=latency,
        max_error=max_error,
        seen_at_s=seen_at_s,
    )


def region_fields(row: RegionRow) -> Fields:
    held = (row.held_bytes.value, str(row.held_bytes.source))
    values = (*astuple(row.latency), *held, row.build_s, row.max_error, row.seen_at_s)
    return (*astuple(row.key), *values)


def region_row(fields: Fields) -> RegionRow | None:
    *key, count, mean_s, m2_s2, held, source, build_s, max_error, seen_at_s = fields
    machine, versions, region, signature, engine, rewrite, context = key
    latency = Latency(count=count, mean_s=mean_s, m2_s2=m2_s2)
    if not latency.is_sound or not all(map(is_amount, (held, build_s, max_error))):
        return None
    if source not in tuple(Source) or (held is None) != (source == Source.UNAVAILABLE):
        return None
    return RegionRow(
        key=RegionKey(
            machine=machine,
            versions=versions,
            region=region,
            signature=signature,
            engine=engine,
            rewrite=rewrite,
            context=context,
        ),
        latency=latency,
        held_bytes=Metric(value=held, source=Source(source)),
        build_s=build_s,
        max_error=max_error,
        seen_at_s=seen_at_s,
    )


def decision_fields(row: DecisionRow, number: int) -> Fields:
    made = row.decision
    told = (made.at_s, made.plan, made.reason, made.outcome)
    return (number, row.machine, row.graph, *told, made.predicted_gain, made.measured_gain)


def decision_row(fields: Fields) -> DecisionRow | None:
    _, machine, graph, at_s, plan, reason, outcome, predicted_gain, measured_gain = fields
    if not is_amount(predicted_gain) or not is_amount(measured_gain):
        return None
    decision = Decision(
        at_s=at_s,
        plan=plan,
        reason=reason,
        outcome=outcome,
        predicted_gain=predicted_gain,
        measured_gain=measured_gain,
    )
    return DecisionRow(machine=machine, graph=graph, decision=decision)
