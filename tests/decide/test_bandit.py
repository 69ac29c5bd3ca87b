"""The bandit in a world of numbers: finds, recognises, returns, remembers."""

from dataclasses import replace

import pytest
from decide.world import EAGER, ONE, PLANS, TIMES, TWO, Asking, World, learned, loop, mind

from gearshift.decide.bandit import Bandit
from gearshift.decide.control import InProcess
from gearshift.decide.policy import How, Options
from gearshift.decide.proportional import Proportional
from gearshift.decide.rules import Rules
from gearshift.ir.snapshot import Sample, Situation, Snapshot
from gearshift.observe.store import memory_store
from gearshift.plan import Objective, Plan
from gearshift.predict.table import Table


def test_it_finds_the_best_plan_of_each_situation() -> None:
    world = World()
    running = loop(world)
    world.live(running, 20)
    assert world.plan == TWO
    world.neighbours = 1
    world.live(running, 60)
    assert world.plan == ONE


def test_where_all_is_slow_what_needs_no_build_is_tried_first() -> None:
    """Another is foreseen to be better still, but is not built yet."""
    busy = Situation(signature="x", neighbours=1)
    table = Table(2)
    table.add(Sample(plan=EAGER.fingerprint, situation=busy, seconds=(0.3,) * 8))
    seen = Snapshot(at_s=1.0, plan=EAGER.fingerprint, trial=None, situation=busy)
    bandit = Bandit(table, lambda situation, plan, seconds: seconds)
    for ready, expected in (((), TWO), ((ONE.fingerprint,), ONE)):
        options = Options(plans=PLANS, num_cores=2)
        proposal = bandit.propose(replace(seen, ready=(EAGER.fingerprint, *ready)), options)
        assert proposal is not None
        assert (proposal.plan, proposal.how) == (expected, How.TRY)


@pytest.mark.parametrize(("lucky_s", "expected"), [(0.019, TWO), (0.015, ONE)])
def test_of_two_about_as_good_the_one_that_served_is_taken(lucky_s: float, expected: Plan) -> None:
    """The other is known from a few calls only."""
    quiet, table = Situation(signature="x", neighbours=0), Table(2)
    for plan, seconds, calls in ((EAGER, 0.05, 20), (TWO, 0.02, 200), (ONE, lucky_s, 20)):
        table.add(Sample(plan=plan.fingerprint, situation=quiet, seconds=(seconds,) * calls))
    bandit = Bandit(table, lambda situation, plan, seconds: seconds)
    seen = Snapshot(at_s=1.0, plan=EAGER.fingerprint, trial=None, situation=quiet)
    proposal = bandit.propose(seen, Options(plans=PLANS, num_cores=2))
    assert proposal is not None
    assert (proposal.plan, proposal.how) == (expected, How.ADOPT)


def test_what_is_about_as_good_takes_turns_with_the_plan_in_force_once() -> None:
    """The plan known to be best has become slower than the next; a slow minute would look the
    same."""
    store = learned(0, seconds=60, times={**TIMES, (TWO, 0): 0.020, (ONE, 0): 0.022})
    world = World({**TIMES, (TWO, 0): 0.024, (ONE, 0): 0.022})
    running = loop(world, InProcess(mind(store)))
    world.live(running, 6)
    assert world.plan == ONE
    assert world.tried == [ONE], "once is enough"


def test_what_is_known_is_adopted_at_once_in_both_directions() -> None:
    world = World()
    running = loop(world)
    world.live_among(running, 0, 1, 0, 1, seconds=60)
    for neighbours, best in ((0, TWO), (1, ONE), (0, TWO)):
        world.neighbours = neighbours
        start_s = world.now_s
        world.live(running, 1.0)
        assert world.plan == best
        assert world.switches[-1][0] - start_s < 0.6


def test_a_second_start_knows_what_the_first_learned() -> None:
    store = learned(0, 1, seconds=60)
    second = World()
    second.live(loop(second, InProcess(mind(store))), 3)
    assert second.plan == TWO


def test_a_second_start_is_not_misled_by_a_good_minute() -> None:
    """When the second best was tried, everything was fast."""
    usual = {(EAGER, 0): 0.040, (TWO, 0): 0.020, (ONE, 0): 0.022}
    times = {key: 0.7 * seconds for key, seconds in usual.items()}
    world, keeper = World(times), mind(memory_store())
    running = loop(world, InProcess(keeper))
    while ONE not in world.tried and world.now_s < 1100:
        world.live(running, 3)
    assert ONE in world.tried
    times.update(usual)
    world.live(running, 20)
    keeper.save()
    second = World(usual)
    second.live(loop(second, InProcess(mind(keeper.store))), 1)
    assert second.plan == TWO


def test_a_hidden_change_is_noticed_by_its_times() -> None:
    """The counters tell nothing, but what was fast is slow now, and another plan is better."""
    times = {(p, n): t for (p, n), t in World().times.items()}
    world = World(times)
    running = loop(world)
    world.live(running, 30)
    assert world.plan == TWO
    times[TWO, 0] = 0.080
    world.live(running, 120)
    assert world.plan == ONE


def test_a_small_hidden_change_is_noticed_if_it_lasts() -> None:
    """By less than machines differ from minute to minute: taking turns tells."""
    world = World({(EAGER, 0): 0.040, (TWO, 0): 0.020, (ONE, 0): 0.022})
    running = loop(world)
    world.live(running, 30)
    assert world.plan == TWO
    world.times[TWO, 0] = 0.028
    world.live(running, 120)
    assert world.plan == ONE


def test_a_worse_minute_is_not_taken_for_a_worse_plan() -> None:
    """Everything takes longer for a while; what another plan took before is no measure of that."""
    times = {(EAGER, 0): 0.040, (TWO, 0): 0.020, (ONE, 0): 0.022}
    world = World(times)
    running = loop(world)
    world.live(running, 8)
    assert world.plan == TWO
    before = len(world.switches)
    for key in times:
        times[key] *= 1.35
    world.live(running, 60)
    assert world.plan == TWO
    assert len(world.switches) == before


@pytest.mark.capability("core.objective")
def test_energy_counts_if_the_user_says_so() -> None:
    """Two threads that are not twice as fast cost more energy than one."""
    world = World({(EAGER, 0): 0.04, (TWO, 0): 0.020, (ONE, 0): 0.025})
    saving = Objective(latency=0.1, energy=0.9)
    world.live(loop(world, objective=saving), 60)
    assert world.plan == ONE
    fast = World(world.times)
    fast.live(loop(fast), 60)
    assert fast.plan == TWO


@pytest.mark.parametrize("policy", [Rules(), Proportional()])
def test_fixed_policies_follow_the_neighbours(policy: object) -> None:
    world = World()
    running = loop(world, Asking(policy))  # type: ignore[arg-type]
    world.live(running, 20)
    assert world.plan == TWO
    world.neighbours = 1
    world.live(running, 20)
    assert world.plan == ONE
