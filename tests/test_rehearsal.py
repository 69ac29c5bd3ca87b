"""Before the first call, on a machine made of numbers."""

from collections.abc import Iterator
from contextlib import contextmanager, nullcontext

import pytest

from gearshift.decide.control import InProcess
from gearshift.decide.guard import Limits
from gearshift.hands import Refusal
from gearshift.ir.snapshot import Situation
from gearshift.ir.topology import CALLER
from gearshift.loop import Loop
from gearshift.plan import Plan, Region, Rewrite, Split
from gearshift.plan.unroll import Steps, alike
from gearshift.rehearsal import A_BUILD, CALLS, LONGER, is_slow, one_of_each_kind_first, rehearse
from tests.decide.world import BUILD_S, EAGER, ONE, PLANS, TIMES, TWO, World, loop

SECONDS = Limits().setup_s


def start(world: World) -> Loop:
    """It is known who else is there."""
    running = loop(world)
    for _ in range(4):
        world.now_s += 0.1
        running.glance()
    running.seen = running.observe()
    return running


def rehearsed(world: World, seconds: float = SECONDS) -> Loop:
    running = start(world)
    rehearse(running, PLANS.values(), seconds, world.clock)
    return running


def test_the_best_serves_from_the_first_call() -> None:
    world = World()
    world.ready = [EAGER.fingerprint]
    running = rehearsed(world)
    assert world.plan == TWO
    assert world.served == (0, 0.0), "nobody has called yet"
    assert set(world.made_ready) == {TWO, ONE}
    assert running.rehearsed[0] == len(PLANS)
    assert dict(world.gains)[TWO.fingerprint] == pytest.approx(2.0, rel=0.05), "as is told"


def test_a_plan_that_gains_little_more_than_noise_serves_too() -> None:
    world = World({**TIMES, (TWO, 0): 0.032})
    rehearsed(world)
    assert world.plan == TWO


def test_beside_a_neighbour_another_is_the_best() -> None:
    world = World()
    world.neighbours = 1
    rehearsed(world)
    assert world.plan == ONE


def test_what_was_found_out_is_kept_for_the_situation_it_was_found_in() -> None:
    world = World()
    running = rehearsed(world)
    quiet = Situation(signature="x", neighbours=0)
    known = {f for f in PLANS if running.guard.model.measured(quiet, f) is not None}
    assert known == PLANS.keys()
    ready, now_s = len(world.made_ready), world.now_s
    rehearse(running, PLANS.values(), SECONDS, world.clock)
    assert (len(world.made_ready), world.now_s) == (ready, now_s), "what is known takes no time"


def test_what_cannot_be_made_ready_is_passed_over_and_not_asked_for_beside_calls() -> None:
    world = World()
    world.refuses[TWO] = Refusal("no room", lasting=False)
    running = rehearsed(world)
    assert world.plan == ONE
    assert isinstance(running.control, InProcess)
    assert TWO.fingerprint not in running.control.mind.options.allowed, "for a while"


def test_a_later_start_that_knows_the_situation_does_not_wait_again() -> None:
    """Also if there is a plan that can never be made ready."""
    world = World()
    world.refuses[TWO] = Refusal("wrong", lasting=True)
    running = rehearsed(world)
    now_s = world.now_s
    rehearse(running, PLANS.values(), SECONDS, world.clock)
    assert world.now_s == now_s
    assert running.rehearsed[0] == 0


def test_a_plan_hardly_better_is_left_to_turns_on_live_calls() -> None:
    world = World({**TIMES, (TWO, 0): 0.0385, (ONE, 0): 0.039})
    rehearsed(world)
    assert world.plan == EAGER


def test_a_model_whose_own_calls_are_slow_gets_more_time() -> None:
    slow = {key: seconds * 8 for key, seconds in TIMES.items()}
    world = World(slow)
    running = start(world)
    now_s = world.now_s
    assert A_BUILD * slow[EAGER, 0] > SECONDS
    rehearse(running, PLANS.values(), SECONDS, world.clock)
    assert set(world.made_ready) == {TWO, ONE}
    assert world.plan == TWO
    assert world.now_s - now_s < (CALLS + 10) * slow[EAGER, 0]


def test_a_model_too_slow_to_make_anything_ready_is_called_twice() -> None:
    slow = {key: seconds * 100 for key, seconds in TIMES.items()}
    world = World(slow)
    assert A_BUILD * slow[EAGER, 0] > LONGER * SECONDS
    running = start(world)
    now_s = world.now_s
    rehearse(running, PLANS.values(), SECONDS, world.clock)
    assert world.plan == EAGER
    assert not world.made_ready
    assert world.now_s - now_s < 2.1 * slow[EAGER, 0]


def test_what_does_not_fit_into_the_time_is_left_to_calls() -> None:
    """The first plan does: the time is over then."""
    world = World()
    running = start(world)
    now_s, seconds = world.now_s, A_BUILD * TIMES[EAGER, 0] + 0.1
    assert seconds < min(3 * BUILD_S, CALLS * TIMES[EAGER, 0])
    rehearse(running, PLANS.values(), seconds / LONGER, world.clock)
    assert world.made_ready == [TWO]
    assert world.now_s - now_s < seconds + BUILD_S + 1
    assert world.plan == TWO


def beside_a_stand_in(world: World) -> Loop:
    @contextmanager
    def stand_in() -> Iterator[None]:
        world.neighbours += 1
        yield
        world.neighbours -= 1

    running = start(world)
    rehearse(running, PLANS.values(), SECONDS, world.clock, stand_in)
    return running


def test_what_is_best_beside_a_neighbour_is_known_before_one_comes() -> None:
    world = World()
    running = beside_a_stand_in(world)
    assert world.plan == TWO, "nobody is there yet"
    assert running.sampler.neighbours == 0, "the stand-in was seen to go"
    world.live(running, 3)
    world.neighbours = 1
    came_s = world.now_s
    world.live(running, 2)
    assert world.plan == ONE
    assert world.switches[-1][0] - came_s < 1.0
    assert not world.tried, "what is known needs no trial"


def test_what_is_far_behind_beside_a_neighbour_is_not_played_there() -> None:
    running = beside_a_stand_in(World())
    beside = Situation(signature="x", neighbours=1)
    known = {f for f in PLANS if running.guard.model.measured(beside, f) is not None}
    assert known == {TWO.fingerprint, ONE.fingerprint}


def test_where_somebody_is_already_there_no_stand_in_comes() -> None:
    world = World({**TIMES, **{(plan, 2): 0.1 for plan in PLANS.values()}})
    world.neighbours = 1
    running = beside_a_stand_in(world)
    assert all(situation.neighbours == 1 for situation in running.guard.model.situations())


def test_a_stand_in_that_nobody_sees_teaches_nothing() -> None:
    world = World()
    running = start(world)
    rehearse(running, PLANS.values(), SECONDS, world.clock, nullcontext)
    assert all(situation.neighbours == 0 for situation in running.guard.model.situations())
    assert world.plan == TWO


def test_the_most_hopeful_of_each_kind_comes_before_the_second_of_any() -> None:
    def plan(backend: str, threads: int, split: Split | None = None) -> Plan:
        rewrite = Rewrite(backend=backend, threads=threads)
        return Plan(regions=(Region(ops=("a",), rewrite=rewrite, split=split),))

    first, second = plan("openvino", 2), plan("openvino", 1)
    divided, other = plan("openvino", 1, Split()), plan("onnxruntime", 2)
    assert one_of_each_kind_first([first, second, divided, other]) == [
        *(first, divided, other),
        second,
    ]


def test_recurrent_layers_on_one_engine_and_over_a_team_are_of_different_kinds() -> None:
    def plan(engine: str, factor: int) -> Plan:
        unroll = alike(2, Steps(then=factor))
        return Plan(regions=(Region(ops=("a",), engine=engine, unroll=unroll),))

    here, again = plan(CALLER, 0), plan(CALLER, 32)
    together = plan("cpu:0+cpu:1", 16)
    assert one_of_each_kind_first([here, again, together]) == [here, together, again]


def test_what_took_turns_does_not_take_turns_again_on_live_calls() -> None:
    alike = {**TIMES, (ONE, 0): 1.05 * TIMES[TWO, 0]}
    world = World(alike)
    running = rehearsed(world)
    assert world.plan == TWO
    world.live(running, 20)
    assert not world.tried
    unrehearsed = World(alike)
    unrehearsed.live(start(unrehearsed), 20)
    assert unrehearsed.tried, "else they do"


def test_the_time_of_a_rehearsal_counts_for_what_trying_may_cost() -> None:
    world = World()
    running = start(world)
    credit_s, now_s = running.guard.credit_s, world.now_s
    rehearse(running, PLANS.values(), SECONDS, world.clock)
    share = running.guard.limits.explore_share
    assert running.guard.credit_s - credit_s == pytest.approx(share * (world.now_s - now_s))


def test_what_is_slow_to_build_is_for_the_time_beside_calls() -> None:
    plans = [Plan(regions=(Region(ops=("a",), rewrite=Rewrite(backend=name)),)) for name in BOTH]
    assert list(map(is_slow, plans)) == [True, False]


BOTH = ("inductor", "openvino")
