"""Before the first call, on a machine made of numbers."""

from gearshift.decide.guard import Limits
from gearshift.hands import Refusal
from gearshift.ir.snapshot import Situation
from gearshift.rehearsal import A_BUILD, rehearse
from tests.decide.world import EAGER, ONE, PLANS, TIMES, TWO, World, loop

SECONDS = Limits().setup_s


def rehearsed(world: World, seconds: float = SECONDS) -> World:
    running = loop(world)
    running.look_around()
    rehearse(running, PLANS.values(), seconds)
    return world


def test_the_best_serves_from_the_first_call() -> None:
    world = World()
    world.ready = [EAGER.fingerprint]
    rehearsed(world)
    assert world.plan == TWO
    assert world.served == (0, 0.0), "nobody has called yet"
    assert set(world.made_ready) == {TWO, ONE}


def test_beside_a_neighbour_another_is_the_best() -> None:
    world = World()
    world.neighbours = 1
    assert rehearsed(world).plan == ONE


def test_what_was_found_out_is_kept_for_the_situation_it_was_found_in() -> None:
    world = World()
    running = loop(world)
    running.look_around()
    rehearse(running, PLANS.values(), SECONDS)
    quiet = Situation(signature="x", neighbours=0)
    known = {f for f in PLANS if running.guard.model.measured(quiet, f) is not None}
    assert known == PLANS.keys()
    asked = len(world.made_ready)
    rehearse(running, PLANS.values(), SECONDS)
    assert len(world.made_ready) == asked, "what is known is not rehearsed again"


def test_what_cannot_be_made_ready_is_passed_over() -> None:
    world = World()
    world.refuses[TWO] = Refusal("no room", lasting=False)
    assert rehearsed(world).plan == ONE


def test_a_plan_hardly_better_is_left_to_turns_on_live_calls() -> None:
    times = {**TIMES, (TWO, 0): 0.0385, (ONE, 0): 0.039}
    assert rehearsed(World(times)).plan == EAGER


def test_a_model_too_slow_to_make_anything_ready_is_left_to_its_calls() -> None:
    slow = {key: seconds * 100 for key, seconds in TIMES.items()}
    world = World(slow)
    assert A_BUILD * slow[EAGER, 0] > SECONDS
    rehearsed(world)
    assert world.plan == EAGER
    assert not world.made_ready


def test_without_time_nothing_is_rehearsed() -> None:
    world = World()
    rehearsed(world, 0.0)
    assert world.plan == EAGER
    assert not world.made_ready
