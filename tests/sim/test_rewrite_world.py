"""The rewrite world: the same from the same seed, fair to all players, and to be learned in."""

from dataclasses import replace
from math import log
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from gearshift.decide.rewrite.actions import ENTRIES, MAX_MEASUREMENTS
from gearshift.decide.rewrite.players import Learned, Measured, OneBackend, Rule, baselines
from gearshift.decide.rewrite.reward import RewriteWeights
from gearshift.errors import UsageError
from gearshift.sim.profiles import write_profiles
from gearshift.sim.rewrite_profiles import SHIPPED, read_regions
from gearshift.sim.rewrite_training import divided, score, standings, train
from gearshift.sim.rewrite_world import NOISE, RewriteWorld
from tests.profiles import region, regions


def world(seed: int = 0, **settings: Any) -> RewriteWorld:
    made = RewriteWorld([region()], np.random.default_rng(seed), **settings)
    made.reset()
    return made


def test_the_same_seed_gives_the_same_world() -> None:
    def lived(seed: int) -> list[float]:
        made = RewriteWorld(regions("one"), np.random.default_rng(seed))
        return [s for _ in range(20) for s in made.reset().seconds.values()]

    assert lived(1) == lived(1)
    assert lived(1) != lived(2)


def test_a_region_is_measured_until_one_of_those_measured_is_taken() -> None:
    made = RewriteWorld([region()], np.random.default_rng(0))
    while made.reset().in_force != "eager":
        pass
    stepped = made.step("onnxruntime")
    assert not stepped.end
    assert stepped.view.seconds["onnxruntime"] == pytest.approx(8e-4, rel=5 * NOISE)
    assert set(stepped.view.seconds) == {"eager", "onnxruntime"}
    assert made.took_s == region().seconds["onnxruntime"], "the best known so far"
    last = made.step("eager")
    assert last.end
    assert made.took_s == region().seconds["eager"]
    assert made.spent == ("onnxruntime",)
    assert made.oracle_s == region().seconds["openvino"]


def test_what_is_earned_adds_up_to_the_speed_up() -> None:
    weights = RewriteWeights(traffic=0.0, measuring=0.01)
    made = world(3, weights=weights)
    start = made.view
    wanted = [name for name in ("openvino", "tiles") if name != start.in_force]
    steps = [made.step(name) for name in (*wanted, made.view.in_force)]
    first_s, last_s = (start.seconds[start.in_force], made.view.seconds[start.in_force])
    assert first_s == last_s
    assert steps[-1].end
    assert sum(step.reward.time for step in steps) == pytest.approx(log(first_s / last_s))
    assert sum(step.reward.measuring for step in steps) == pytest.approx(-0.01 * len(wanted))


def test_after_so_many_measurements_it_runs_by_the_best() -> None:
    many = {name: 1e-3 * (index + 1) for index, name in enumerate(ENTRIES)}
    profile = replace(region(), seconds=many, build_s=dict.fromkeys(many, 0.1))
    made = RewriteWorld([profile], np.random.default_rng(0))
    first = made.reset().in_force
    names = [name for name in reversed(ENTRIES) if name != first][:MAX_MEASUREMENTS]
    ends = [made.step(name).end for name in names]
    assert ends.index(True) == MAX_MEASUREMENTS - 1
    assert made.runs_by == min((first, *names), key=ENTRIES.index)


def test_nobody_is_better_than_the_oracle_and_who_knows_is_as_good() -> None:
    profiles = regions("one")
    for player in baselines(np.random.default_rng(0)):
        assert score(player, profiles, seed=1, episodes=3).share <= 1
    compute_bound = [region(size=size) for size in (0.5, 1.0)]
    knowing = score(OneBackend("openvino"), compute_bound, seed=1, episodes=3)
    assert knowing.share == 1
    assert knowing.measurements <= 1
    assert score(Measured(), profiles, seed=1, episodes=3).share > 0.98


def test_what_players_spend_is_counted() -> None:
    spends = score(Measured(), [region()], seed=0, episodes=20)
    assert spends.measurements == 4, "all but the one in force and the one that is slow to build"
    assert 0.3 <= spends.build_s <= 0.4
    rule = score(Rule(), [region()], seed=0, episodes=20)
    assert rule.measurements == 1
    assert rule.build_s == 20, "arithmetic takes long: fusion, however slow to build"


def test_times_are_skewed_to_learn_from_and_only_then() -> None:
    assert world().profile == region()
    skewed = world(skew=0.2).profile
    assert skewed.seconds.keys() == region().seconds.keys()
    assert skewed.seconds != region().seconds


def test_a_model_is_trained_on_or_tested_on() -> None:
    models = ("one", "two", "three", "four", "five")
    train_on, test_on = divided(regions(*models))
    assert {profile.model for profile in test_on} == {"four"}
    assert {profile.model for profile in train_on} == set(models) - {"four"}


@pytest.mark.capability("region.rl")
def test_the_agent_learns_which_rewrite_a_region_needs() -> None:
    """What is best depends on what bounds it: none is for all."""
    profiles = regions("one", "two", "three", "four")
    trained = train(profiles, seed=0, steps=4000, points=4, episodes=2)
    found = standings(trained.agent, profiles, seed=9, episodes=5)
    fixed = max(found[f"always {name}"].share for name in ("eager", "onnxruntime", "openvino"))
    assert found["dqn"].share > fixed + 0.1
    assert found["dqn"].measurements < found["measured greedy"].measurements
    assert [point.step for point in trained.curve] == [1000, 2000, 3000, 4000]
    assert list(found) == sorted(found, key=lambda name: -found[name].share)


def test_the_same_seed_gives_the_same_agent() -> None:
    def weights() -> list[np.ndarray]:
        profiles = regions("one", "two", "three", "four")
        return train(profiles, seed=7, steps=800, points=2, episodes=1).agent.online.parameters

    assert all(map(np.array_equal, weights(), weights()))


def test_an_agent_learns_nothing_while_it_is_scored() -> None:
    profiles = regions("one", "two", "three", "four")
    dqn = train(profiles, seed=0, steps=600, points=1, episodes=1).agent
    first, again = (score(Learned(dqn), profiles, seed=1, episodes=1) for _ in range(2))
    assert first == again


def test_profiles_are_read_as_they_were_written(tmp_path: Path) -> None:
    path = tmp_path / "profiles.json"
    write_profiles(path, regions("one"), {"cpu": "this"})
    assert read_regions(path) == regions("one")


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"seconds": {"magic": 1.0}}, "no entry 'magic'"),
        ({"seconds": {"openvino": 1.0}, "build_s": {"openvino": 1.0}}, "not measured by eager"),
        ({"build_s": {}}, "not told how it was built"),
        ({"seconds": {"eager": 0.0}, "build_s": {"eager": 0.0}}, "takes no time"),
    ],
)
def test_profiles_that_make_no_sense_are_refused(
    tmp_path: Path, change: dict[str, Any], said: str
) -> None:
    path = tmp_path / "odd.json"
    write_profiles(path, [replace(region(), **change)], {})
    with pytest.raises(UsageError, match=rf"odd\.json' holds no profiles.*{said}"):
        read_regions(path)


def test_the_environment_keeps_gymnasiums_contract() -> None:
    import gymnasium
    from gymnasium.utils.env_checker import check_env

    env = gymnasium.make("gearshift/Rewrite-v0", profiles=regions("one"))
    check_env(env.unwrapped)
    for seed in range(20):
        _, told = env.reset(seed=seed)
        ended = False
        while not ended:
            _, _, ended, cut, told = env.step(env.action_space.sample(told["action_mask"]))
            assert set(told["reward_parts"]) == {"time", "traffic", "measuring"}
            assert told["oracle_s"] <= told["took_s"]
            assert not cut


def test_an_illegal_choice_changes_nothing_and_costs() -> None:
    from gearshift.sim.rewrite_env import ILLEGAL, STEPS, RewriteEnv

    env = RewriteEnv([region()])
    before, _ = env.reset(seed=0)
    illegal = np.int64(ENTRIES.index("prefetch"))
    for number in range(1, STEPS + 1):
        after, reward, ended, cut, _ = env.step(illegal)
        assert np.array_equal(before, after)
        assert (reward, ended, cut) == (ILLEGAL, False, number == STEPS)


def test_regions_that_are_shipped_can_be_trained_on() -> None:
    if not SHIPPED.exists():
        with pytest.raises(UsageError, match="gearshift train rewrite --record"):
            read_regions(SHIPPED)
        return
    train_on, test_on = divided(read_regions(SHIPPED))
    assert len(train_on) > len(test_on) > 0
