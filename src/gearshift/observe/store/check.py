"""A checker that anyone can run on a store, however it is kept.

Must not know where the rows are.
"""

from dataclasses import replace
from math import inf, isclose, nan

from gearshift.ir.measurement import Metric, Source
from gearshift.observe.store.rows import DecisionRow, PlanKey, RegionKey
from gearshift.observe.store.store import Store
from gearshift.plan.decision import Decision
from gearshift.plan.plan import Plan, Region

MACHINE = "check_store"
"""The machine under whose name rows are written: no real one has it."""


def check_store(store: Store) -> None:
    """Raises AssertionError, saying which duty is not met. Leaves a few rows; closes the store."""
    _check_plans(store)
    _check_regions(store)
    _check_the_rest(store)
    store.close()
    store.close()
    assert store.set_fact(MACHINE, "late", "1") is False, "a closed store keeps nothing"
    assert store.fact(MACHINE, "late") is None, "a closed store finds nothing"


def _check_plans(store: Store) -> None:
    key = PlanKey(machine=MACHINE, versions="1", graph="g", signature="s")
    plan = Plan(regions=(Region(ops=("a",)),))
    before = sum(row.latency.count for row in store.plans(key))
    assert store.add_plan(key, plan, [0.1, 0.3], max_error=1e-6) == 2, "samples are kept"
    poison = [nan, inf, -1.0, 0.0, 1e-9, 1e9]
    assert store.add_plan(key, plan, poison, max_error=0.0) == 0, "poison is not"
    assert store.add_plan(key, plan, [0.2], max_error=nan) == 0, "nor is an error that is NaN"
    (row,) = store.plans(key)
    assert row.latency.count == before + 2, "samples add up"
    assert isclose(row.latency.mean_s, 0.2), "and are averaged"
    assert row.max_error == 1e-6, "the largest error is kept"
    assert row.fingerprint == plan.fingerprint, "rows are told apart by their plan"
    assert not store.plans(replace(key, context="busy")), "contexts are kept apart"
    assert store.plans_of(machine=MACHINE, versions="1", graph="g") == [row], "yet found together"


def _check_regions(store: Store) -> None:
    key = RegionKey(
        machine=MACHINE, versions="1", region="r", signature="s", engine="cpu:0", rewrite="eager"
    )
    held_bytes = Metric(value=8.0, source=Source.MODELLED)
    assert store.add_region(key, [0.1], held_bytes=held_bytes, build_s=1.0) == 1, "regions, too"
    assert store.add_region(key, [0.1]) == 1, "are merged"
    (row,) = store.regions(machine=MACHINE, versions="1", region="r")
    assert row.key == key, "and found by what they compute"
    assert row.held_bytes == held_bytes, "what was not measured again stays"
    assert row.build_s == 1.0, "what was not measured again stays"


def _check_the_rest(store: Store) -> None:
    assert store.set_fact(MACHINE, "fact", "[1]"), "facts are kept"
    assert store.set_fact(MACHINE, "fact", "[2]"), "and written over"
    assert store.fact(MACHINE, "fact") == "[2]", "the last one wins"
    made = Decision(at_s=1.0, plan="p", reason="faster", outcome="kept", predicted_gain=1.5)
    row = DecisionRow(machine=MACHINE, graph="g", decision=made)
    assert store.add_decision(row), "decisions are kept"
    assert store.decisions(machine=MACHINE, graph="g")[-1] == row, "in order"
