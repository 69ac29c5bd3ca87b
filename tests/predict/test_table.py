"""Estimates: measured where they can be, marked as modelled where not."""

import math

import pytest
from decide.world import CORES, EAGER, ONE, PLANS, TWO

from gearshift.ir.measurement import Source
from gearshift.ir.snapshot import Sample, Situation
from gearshift.ir.work import Work
from gearshift.plan import Plan
from gearshift.predict.table import ENOUGH, Stats, Table

QUIET = Situation(signature="x", neighbours=0)
BUSY = Situation(signature="x", neighbours=1)


def sample(
    situation: Situation, plan: Plan, seconds: list[float], work: Work | None = None
) -> Sample:
    return Sample(plan=plan.fingerprint, situation=situation, seconds=tuple(seconds), work=work)


def test_what_was_measured_is_the_estimate() -> None:
    table = Table(CORES)
    table.add(sample(QUIET, TWO, [0.02] * ENOUGH))
    found = table.estimate(TWO, QUIET, PLANS)
    assert found is not None
    assert found.source is Source.MEASURED
    assert found.mean_s == pytest.approx(0.02)


def test_elsewhere_measured_is_carried_over() -> None:
    """Two threads beside a neighbour wait for each other; one has a core to itself."""
    table = Table(CORES)
    table.add(sample(QUIET, TWO, [0.02] * ENOUGH))
    table.add(sample(QUIET, ONE, [0.03] * ENOUGH))
    two, one = (table.estimate(plan, BUSY, PLANS) for plan in (TWO, ONE))
    assert two is not None
    assert one is not None
    assert two.source is one.source is Source.MODELLED
    assert two.mean_s == pytest.approx(0.03)
    assert one.mean_s == pytest.approx(0.03)


def test_nothing_known_is_no_estimate() -> None:
    assert Table(CORES).estimate(TWO, QUIET, PLANS) is None


def test_the_unmeasured_is_guessed_and_unsure() -> None:
    table = Table(CORES)
    table.add(sample(QUIET, EAGER, [0.04] * ENOUGH))
    found = table.estimate(TWO, QUIET, PLANS)
    assert found is not None
    assert found.hopeful_s < found.mean_s < 0.04


@pytest.mark.parametrize("poison", [math.nan, math.inf, -1.0, 0.0, 1e-9, 1e9])
def test_poison_leaves_no_trace(poison: float) -> None:
    clean, poisoned = Stats(), Stats()
    for _ in range(10):
        clean.add(0.02)
        poisoned.add(0.02)
        poisoned.add(poison)
    assert clean == poisoned


def test_one_long_call_moves_little() -> None:
    stats = Stats()
    for _ in range(50):
        stats.add(0.02)
    stats.add(2.0)
    assert stats.estimate().mean_s < 0.025
