"""Estimates: measured where they can be, marked as modelled where not."""

import math

import pytest
from decide.world import CORES, EAGER, ONE, PLANS, TWO

from gearshift.ir.measurement import Source
from gearshift.ir.roofline import Caches, Roofline
from gearshift.ir.snapshot import Sample, Situation
from gearshift.ir.work import Work
from gearshift.plan import Plan, Region, Rewrite
from gearshift.plan.unroll import AT_ONCE, alike
from gearshift.predict.roofline import least_s
from gearshift.predict.table import ENOUGH, Stats, Table

SPIN = Plan(
    regions=(Region(ops=("a",), rewrite=Rewrite(backend="onnxruntime", threads=2, spin=True)),)
)
QUIET = Situation(signature="x", neighbours=0)
BUSY = Situation(signature="x", neighbours=1)


def sample(
    situation: Situation, plan: Plan, seconds: list[float], work: Work | None = None
) -> Sample:
    return Sample(plan=plan.fingerprint, situation=situation, seconds=tuple(seconds), work=work)


def measured_s(table: Table, plan: Plan) -> float:
    found = table.measured(QUIET, plan.fingerprint)
    assert found is not None
    return found.mean_s


def test_what_was_measured_is_the_estimate() -> None:
    table = Table(CORES)
    table.add(sample(QUIET, TWO, [0.02] * ENOUGH))
    found = table.estimate(TWO, QUIET, PLANS)
    assert found is not None
    assert found.source is Source.MEASURED
    assert found.mean_s == pytest.approx(0.02)


def test_elsewhere_measured_is_carried_over() -> None:
    """Two threads beside a neighbour wait for each other, those that spin most; one has a core to
    itself."""
    table = Table(CORES)
    for plan, seconds in ((TWO, 0.02), (SPIN, 0.02), (ONE, 0.03)):
        table.add(sample(QUIET, plan, [seconds] * ENOUGH))
    two, spin, one = (table.estimate(plan, BUSY, PLANS) for plan in (TWO, SPIN, ONE))
    assert two is not None
    assert spin is not None
    assert one is not None
    assert two.source is one.source is Source.MODELLED
    assert two.mean_s == pytest.approx(0.02 * 1.5**0.7)
    assert spin.mean_s == pytest.approx(0.02 * 1.5**2.5)
    assert one.mean_s == pytest.approx(0.03)


def test_where_no_core_is_left_to_the_caller_its_threads_wait_for_each_other() -> None:
    crowded = Situation(signature="x", neighbours=CORES)
    table = Table(CORES)
    table.add(sample(QUIET, TWO, [0.02] * ENOUGH))
    found = table.estimate(TWO, crowded, PLANS)
    assert found is not None
    assert found.mean_s == pytest.approx(0.02 * 2**1.5)


def unrolled(engine: str) -> Plan:
    layers = Region(ops=("a",), engine=engine, unroll=alike(1, AT_ONCE))
    return Plan(regions=(layers, Region(ops=("b",))))


def test_recurrent_layers_on_a_core_of_their_own_do_not_wait_for_a_neighbour() -> None:
    """Those over all cores do; what lies between layers counts for little."""
    table = Table(CORES)
    plans = {plan.fingerprint: plan for plan in (EAGER, unrolled("cpu:0"), unrolled("caller"))}
    table.add(sample(QUIET, EAGER, [0.04] * ENOUGH))
    table.add(sample(BUSY, EAGER, [0.08] * ENOUGH))

    def foreseen_s(engine: str, situation: Situation) -> float:
        found = table.estimate(unrolled(engine), situation, plans)
        assert found is not None
        return found.mean_s

    assert foreseen_s("caller", QUIET) == pytest.approx(0.7 * 0.04)
    alone, together = (
        foreseen_s(engine, BUSY) / foreseen_s(engine, QUIET) for engine in ("cpu:0", "caller")
    )
    assert alone < 0.7 * together


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
    assert stats.estimate(1.0).mean_s < 0.025


def test_a_plan_is_no_better_for_having_been_measured_in_a_good_minute() -> None:
    """The second is a tenth slower than the first, whenever the two are seen together."""
    table = Table(CORES)
    table.add(sample(QUIET, TWO, [0.02] * 100))
    for _ in range(20):
        table.add(sample(QUIET, TWO, [0.016] * 4))
    for _ in range(3):
        table.add(sample(QUIET, TWO, [0.016] * 4))
        table.add(sample(QUIET, ONE, [0.0176] * 4))
    for _ in range(50):
        table.add(sample(QUIET, TWO, [0.022] * 4))
    first_s, second_s = measured_s(table, TWO), measured_s(table, ONE)
    assert first_s == pytest.approx(0.022, rel=0.02)
    assert 1.03 < second_s / first_s < 1.17


def test_what_turns_told_stands_for_what_was_measured() -> None:
    table = Table(CORES)
    table.add(sample(QUIET, TWO, [0.03] * 50))
    table.add(sample(QUIET, ONE, [0.02] * 8))
    table.relate(QUIET, ONE.fingerprint, TWO.fingerprint, 0.9, 8)
    found = table.measured(QUIET, ONE.fingerprint)
    assert found is not None
    assert found.mean_s == pytest.approx(0.03 / 0.9)
    assert found.count == 8
    table.relate(QUIET, ONE.fingerprint, TWO.fingerprint, math.nan, 8)
    assert table.measured(QUIET, ONE.fingerprint) == found


def test_what_is_far_off_is_no_matter_of_the_minute() -> None:
    table = Table(CORES)
    for plan in (TWO, ONE):
        table.add(sample(QUIET, plan, [0.02] * 100))
    for _ in range(100):
        table.add(sample(QUIET, TWO, [0.2] * 4))
    assert measured_s(table, TWO) == pytest.approx(0.2, rel=0.05)
    assert measured_s(table, ONE) < 0.2 / 4


ROOFLINE = Roofline(
    num_threads=CORES,
    caches=Caches(l1_bytes=1 << 15, l2_bytes=1 << 19, l3_bytes=1 << 23, origin="a test"),
    peak_flops_s=1e11,
    l1_bytes_s=4e11,
    l2_bytes_s=2e11,
    l3_bytes_s=1e11,
    dram_bytes_s=2e10,
    took_s=0.1,
)
SMALL = Work(flops=1e8, moved_bytes=2e6, set_bytes=1e6)
LARGE = Work(flops=8e8, moved_bytes=8e6, set_bytes=4e6)


def test_other_sizes_are_scaled_by_the_roofline() -> None:
    """Compute-bound work of eight times the arithmetic takes eight times as long."""
    table = Table(CORES)
    table.roofline = ROOFLINE
    elsewhere = Situation(signature="larger", neighbours=0)
    table.add(sample(QUIET, TWO, [0.02] * ENOUGH, SMALL))
    table.add(sample(elsewhere, EAGER, [0.4], LARGE))
    found = table.estimate(TWO, elsewhere, PLANS)
    assert found is not None
    assert found.source is Source.MODELLED
    assert found.mean_s == pytest.approx(0.16)


def test_where_nothing_was_measured_the_roofline_tells() -> None:
    table = Table(CORES)
    table.roofline = ROOFLINE
    table.add(sample(QUIET, EAGER, [0.04], SMALL))
    two, one = (table.estimate(plan, QUIET, PLANS) for plan in (TWO, ONE))
    assert two is not None
    assert one is not None
    assert SMALL.flops / ROOFLINE.peak_flops_s < two.mean_s < one.mean_s


def test_memory_bounds_what_arithmetic_does_not() -> None:
    far = Work(flops=1.0, moved_bytes=1e9, set_bytes=1e9)
    near = Work(flops=1.0, moved_bytes=1e6, set_bytes=1e6)
    assert least_s(far, ROOFLINE, 2) == pytest.approx(1e9 / ROOFLINE.dram_bytes_s)
    assert least_s(near, ROOFLINE, 2) == pytest.approx(1e6 / ROOFLINE.l3_bytes_s)


def test_a_few_calls_tell_something() -> None:
    """A newcomer taken out after two calls ten times as long is not hoped for again."""
    table = Table(CORES)
    table.add(sample(QUIET, EAGER, [0.02] * ENOUGH))
    table.add(sample(QUIET, ONE, [0.2, 0.2]))
    found = table.estimate(ONE, QUIET, PLANS)
    assert found is not None
    assert found.hopeful_s > 0.02
