"""The unroll world: the same from the same seed, fair to all players, within its limits."""

from dataclasses import replace
from itertools import pairwise, product

import numpy as np
import pytest

from gearshift.decide.unroll.actions import CHOICES, MAX_LAYERS, STAY, mask, number_of
from gearshift.decide.unroll.constraints import Constraints
from gearshift.decide.unroll.state import FAR, INPUTS, features
from gearshift.decide.unroll.view import RAGGED, STREAMING
from gearshift.plan.unroll import AT_ONCE, ROLLED, Steps
from gearshift.sim.unroll_cases import (
    ARCHITECTURES,
    CALLS,
    Architecture,
    Episode,
    divided,
    draw_episode,
)
from gearshift.sim.unroll_course import ALONE, TEAM, layers_of, run
from gearshift.sim.unroll_oracle import episode_oracle_s, oracle_s
from gearshift.sim.unroll_profiles import Kernels
from gearshift.sim.unroll_world import SWITCH_S, UnrollWorld
from tests.profiles import kernels

KERNELS = Kernels.of(kernels())
SMALL = Architecture(kind="lstm", num_layers=2, hidden_size=64)
BY_16 = Steps(then=16)


def episode(seed: int = 0, architecture: Architecture = SMALL, mixed: float = 0.0) -> Episode:
    return draw_episode([architecture], KERNELS, np.random.default_rng(seed), mixed=mixed)


def found(wanted: object, architecture: Architecture = SMALL) -> Episode:
    """The first with these engines or this kind of inputs, in one direction and without a limit."""
    for seed in range(400):
        made = episode(seed, architecture)
        told = (made.case.engines, made.case.inputs)
        if wanted in told and made.case.stack.num_directions == 1:
            return replace(made, case=replace(made.case, memory_limit_bytes=None))
    raise AssertionError(wanted)


def lived(seed: int, actions: int = 20) -> list[float]:
    random = np.random.default_rng(seed)
    world = UnrollWorld(random)
    view = world.begin(draw_episode(ARCHITECTURES, KERNELS, random, mixed=0.5))
    took = []
    for _ in range(actions):
        action = int(random.choice(np.flatnonzero(mask(view))))
        stepped = world.step(action)
        view = stepped.view
        took.append(stepped.took_s)
    return took


def test_the_same_seed_gives_the_same_world() -> None:
    assert lived(1) == lived(1)
    assert lived(1) != lived(2)


def test_architectures_are_trained_on_or_tested_on() -> None:
    train_on, test_on = divided()
    assert not set(train_on) & set(test_on)
    assert {a.num_layers for a in test_on} == set(range(1, MAX_LAYERS + 1))
    assert {a.kind for a in test_on} == {"lstm", "gru"}
    assert len(train_on) == pytest.approx(3 * len(test_on), abs=3)
    sizes = {a.hidden_size for a in ARCHITECTURES}
    assert {a.hidden_size for a in test_on} == sizes
    assert (min(sizes), max(sizes)) == (32, 1024)


def test_cases_are_of_every_kind_and_can_run_as_they_begin() -> None:
    random, seen = np.random.default_rng(0), set()
    for _ in range(200):
        made = draw_episode(ARCHITECTURES, KERNELS, random, mixed=0.5)
        case = made.case
        seen.add((case.inputs, len(case.engines), len(case.engines[0])))
        assert case.fits(made.start)
        assert len(made.calls) == CALLS + 1
        assert all(call.num_steps <= case.num_steps for call in made.calls)
        assert all(call.num_rows == case.num_rows for call in made.calls)
        assert case.inputs == RAGGED or not any(call.ragged for call in made.calls)
        assert case.inputs != STREAMING or case.num_steps <= 16
        assert case.engines != TEAM or case.stack.num_layers * case.stack.num_directions > 1
    assert len(seen) == 9


def test_neighbours_are_there_from_one_call_to_the_next() -> None:
    calls = episode().calls
    for now, later in pairwise(calls):
        assert later.crowd.before == now.crowd.after
    assert any(call.crowd.before != call.crowd.after for call in calls)


def test_what_is_chosen_is_in_force_in_the_next_call_and_costs_a_switch() -> None:
    world = UnrollWorld(np.random.default_rng(0), constraints=Constraints(dwell_calls=3))
    view = world.begin(found(ALONE), ROLLED)
    assert view.settings == (ROLLED, ROLLED)
    stepped = world.step(number_of(1, AT_ONCE))
    assert stepped.view.settings == world.settings == (ROLLED, AT_ONCE)
    ran = world.case.run(world.call, (ROLLED, ROLLED), (ROLLED, AT_ONCE))
    assert stepped.took_s == pytest.approx(ran.took_s * world.call.noise + SWITCH_S)
    assert stepped.view.layers[1].calls_kept == 1
    assert not mask(stepped.view)[number_of(1, BY_16)], "it has just changed"
    assert mask(stepped.view)[number_of(0, BY_16)]
    assert stepped.view.switches_left == view.switches_left - 1
    assert world.num_switches == 1


def test_an_illegal_action_changes_nothing() -> None:
    world = UnrollWorld(np.random.default_rng(0))
    world.begin(episode())
    before = world.settings
    world.step(number_of(5, ROLLED))
    assert world.settings == before
    assert world.num_switches == 0


def test_an_episode_ends_with_its_last_call() -> None:
    world = UnrollWorld(np.random.default_rng(0))
    world.begin(episode())
    assert [world.step(STAY).end for _ in range(CALLS)] == [False] * (CALLS - 1) + [True]


@pytest.mark.capability("rnn.constraints")
def test_the_memory_limit_is_never_exceeded_whatever_is_chosen() -> None:
    random = np.random.default_rng(3)
    limited = 0
    for _ in range(60):
        made = draw_episode(ARCHITECTURES, KERNELS, random, mixed=0.5)
        limit = made.case.memory_limit_bytes
        if limit is None:
            continue
        limited += 1
        world = UnrollWorld(random)
        view = world.begin(made)
        for _ in range(20):
            legal = np.flatnonzero(mask(view)[:STAY])
            stepped = world.step(int(random.choice(legal)) if len(legal) else STAY)
            view = stepped.view
            assert made.case.footprint.held_bytes(world.settings) <= limit
            assert stepped.reward.memory == 0
    assert limited > 10


def test_readings_tell_what_happens() -> None:
    made = found(TEAM, Architecture(kind="gru", num_layers=4, hidden_size=128))
    crowd = replace(made.calls[0].crowd, before=(0, 2), after=(0, 2))
    quiet = replace(made, calls=(replace(made.calls[0], crowd=crowd), *made.calls[1:]))
    view = UnrollWorld(np.random.default_rng(0)).begin(quiet, BY_16)
    first, last = view.layers[1], view.layers[-1]
    assert (first.engine, last.engine) == (0, 1)
    assert first.run_delay_share.value == pytest.approx(0, abs=0.15)
    assert last.run_delay_share.value == pytest.approx(2 / 3, abs=0.15)
    assert first.step_s.value is not None
    assert last.step_s.value is not None
    assert last.step_s.value > 2 * first.step_s.value
    numbers = features(view)
    assert numbers.shape == (len(INPUTS),)
    assert np.isfinite(numbers).all()
    assert np.abs(numbers).max() <= FAR


def test_the_oracle_is_the_best_there_is_for_two_layers() -> None:
    made = found(TEAM)
    case, call = made.case, made.calls[1]
    every = [
        run(case.stack, case.engines, call.crowd, layers_of(call, pair, pair, case.paces)).took_s
        for pair in product(CHOICES, repeat=2)
    ]
    assert oracle_s(case, call) == pytest.approx(min(every) * call.noise)


@pytest.mark.parametrize("seed", range(12))
def test_no_setting_that_is_alike_for_all_layers_beats_the_oracle(seed: int) -> None:
    made = episode(seed, ARCHITECTURES[seed * 11])
    for call in made.calls[1:4]:
        best_s = oracle_s(made.case, call)
        for steps in CHOICES:
            settings = made.case.alike(steps)
            took_s = made.case.run(replace(call, reached_share=0.0), settings, settings).took_s
            assert took_s * call.noise >= best_s * (1 - 1e-9)


def test_the_oracle_of_an_episode_is_that_of_all_its_calls_but_the_first() -> None:
    made = episode()
    short = replace(made, calls=made.calls[:3])
    expected = sum(oracle_s(made.case, call) for call in made.calls[1:3])
    assert episode_oracle_s(short) == pytest.approx(expected)


def test_the_environment_keeps_gymnasiums_contract() -> None:
    import gymnasium
    from gymnasium.utils.env_checker import check_env

    env = gymnasium.make("gearshift/Unroll-v0", profiles=kernels())
    check_env(env.unwrapped)
    for seed in range(5):
        _, told = env.reset(seed=seed)
        for call in range(CALLS):
            _, reward, ended, cut, told = env.step(env.action_space.sample(told["action_mask"]))
            assert set(told["reward_parts"]) == {"time", "memory", "cache"}
            assert reward == pytest.approx(sum(told["reward_parts"].values()))
            assert not ended
            assert cut == (call + 1 == CALLS)
    assert 0 < env.unwrapped.oracle_s() < 2 * told["took_s"]


def test_an_illegal_choice_costs() -> None:
    from gearshift.sim.unroll_env import ILLEGAL, UnrollEnv

    env = UnrollEnv(kernels(), [SMALL])
    env.reset(seed=0)
    _, reward, _, _, told = env.step(np.int64(number_of(5, ROLLED)))
    assert reward == pytest.approx(sum(told["reward_parts"].values()) + ILLEGAL)


def test_beside_a_usual_setting_only_what_is_earned_beyond_it_counts() -> None:
    from gearshift.sim.unroll_env import UnrollEnv

    env = UnrollEnv(kernels(), [SMALL], mixed=0.0, usual=ROLLED)
    for seed in range(5):
        env.reset(seed=seed)
        for _ in range(CALLS):
            _, reward, *_ = env.step(np.int64(STAY))
            assert reward == pytest.approx(0.0, abs=1e-9)
    env = UnrollEnv(kernels(), [SMALL], mixed=0.0, usual=ROLLED)
    env.reset(seed=1)
    env.step(np.int64(number_of(0, AT_ONCE)))
    _, reward, _, _, told = env.step(np.int64(STAY))
    assert reward != pytest.approx(0.0, abs=1e-3)
    assert reward != pytest.approx(sum(told["reward_parts"].values()), abs=1e-3)
