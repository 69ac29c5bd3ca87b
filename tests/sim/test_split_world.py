"""The simulator: the same from the same seed, and as machines are."""

import math
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from gearshift.decide.learn.dqn import Dqn
from gearshift.decide.split.actions import ACTIONS, FOLLOW, NAMES
from gearshift.decide.split.players import Fixed, Greedy, Learned, Share, baselines
from gearshift.decide.split.profiling import OVERHEAD, Experience
from gearshift.decide.split.view import (
    INPUTS,
    EngineView,
    SplitView,
    features,
    foreseen,
    mask,
    speeds,
)
from gearshift.errors import UsageError
from gearshift.plan.objective import SplitWeights
from gearshift.sim import ENVIRONMENTS
from gearshift.sim.learning import TEST_SEED
from gearshift.sim.profiles import Parts, Profile, read_profiles, write_profiles
from gearshift.sim.split_training import EPISODE, score, standings, train
from gearshift.sim.split_world import SplitWorld

DRAWN = np.random.default_rng(3)


def profile(name: str = "region", *, alone_s: float = 0.1, joined_s: float = 0.0005) -> Profile:
    """Rows in every ratio; nothing else."""
    splits = {}
    for action in ACTIONS:
        if action.split is not None and action.split.how in ("rows", "interleaved"):
            shares = action.shares or (0.5, 0.5)
            splits[action.name] = Parts(
                parts_s=(alone_s * shares[0], alone_s * shares[1]),
                joined_s=joined_s,
                link_share=0.1,
                held_share=1.0,
            )
    return Profile(
        name=name,
        backend="onnxruntime",
        kind="conv",
        dims=(8, 64, 56, 56),
        num_rows=8,
        flops=1e9,
        moved_bytes=1e8,
        item_bytes=4,
        alone_s=alone_s,
        splits=splits,
    )


def world(seed: int = 0) -> SplitWorld:
    made = SplitWorld([profile()], np.random.default_rng(seed))
    made.reset()
    return made


def test_the_same_seed_gives_the_same_world() -> None:
    def lived(seed: int) -> list[float]:
        made = world(seed)
        return [made.step(index % 3).took_s for index in range(30)]

    assert lived(1) == lived(1)
    assert lived(1) != lived(2)


def test_a_view_as_numbers() -> None:
    view = world().reset()
    numbers = features(view)
    assert numbers.shape == (len(INPUTS),)
    assert np.isfinite(numbers).all()
    assert numbers.min() >= -1
    assert numbers.max() <= 3
    legal = [name for name, may in zip(NAMES, mask(view), strict=True) if may]
    assert legal == [a.name for a in ACTIONS if a.member is not None or a.name in profile().splits]


def test_a_neighbour_takes_half_of_its_core() -> None:
    made = world()
    made.speeds = np.array([1.0, 1.0])
    made.neighbours = np.array([0, 0])
    equal, unequal = NAMES.index("rows 1:1"), NAMES.index("rows 2:1")
    assert made.mean_s(equal) == pytest.approx(0.0505, rel=0.05)
    made.neighbours = np.array([0, 1])
    assert made.mean_s(equal) == pytest.approx(0.1005, rel=0.05)
    assert 0.1 * 2 / 3 < made.mean_s(unequal) < 0.085, "one waits for the other now and then"
    assert made.mean_s(unequal) < made.mean_s(FOLLOW) < 0.095, "six rows and two"


def test_the_oracle_can_be_reached() -> None:
    """Who always knew what is best would take as long as it."""
    made = SplitWorld([profile()], np.random.default_rng(7))
    made.reset()
    took_s = oracle_s = 0.0
    for _ in range(400):
        stepped = made.step(min(filter(made.legal, range(len(ACTIONS))), key=made.mean_s))
        took_s, oracle_s = took_s + stepped.took_s, oracle_s + stepped.oracle_s
    assert oracle_s / took_s == pytest.approx(1.0, abs=0.04)


def test_what_came_of_a_split_corrects_its_estimate() -> None:
    """One that turned out worse than foreseen is known to be."""
    slow = replace(profile().splits["interleaved"], joined_s=0.5)
    made = SplitWorld([replace(profile(), splits={**profile().splits, "interleaved": slow})], DRAWN)
    before = made.reset().estimates_s
    assert before["interleaved"] < 1.5 * before["rows 1:1"]
    for _ in range(3):
        view = made.step(NAMES.index("interleaved")).view
    assert view.tried == {"interleaved"}
    assert view.estimates_s["interleaved"] > 1.3 * view.foreseen_s["interleaved"]
    assert made.reset().tried == frozenset()


def test_who_came_meanwhile_is_not_held_against_a_split() -> None:
    """It is in what is seen of the engine, and counts but once."""
    made = SplitWorld([profile()], np.random.default_rng(5))
    made.reset()
    equal = NAMES.index("rows 1:1")
    made.speeds, made.neighbours = np.array([1.0, 1.0]), np.array([0, 0])
    for _ in range(5):
        made.step(equal)
    made.neighbours = np.array([0, 1])
    for _ in range(3):
        made.neighbours[:] = (0, 1)
        view = made.step(equal).view
    usual_s = view.foreseen_s["rows 1:1"] / OVERHEAD["rows"]
    assert view.estimates_s["rows 1:1"] == pytest.approx(usual_s, rel=0.15)


def test_rows_stay_whole_in_what_is_foreseen_and_for_the_oracle() -> None:
    """Of two rows a faster engine gets one or both, not one and a half."""
    two = SplitWorld([replace(profile(), num_rows=2)], np.random.default_rng(5))
    two.reset()
    two.speeds, two.neighbours = np.array([1.0, 1 / 3]), np.array([0, 0])
    view = two.step(NAMES.index("rows 1:1")).view
    assert view.speeds[1] / view.speeds[0] == pytest.approx(1 / 3, rel=0.1)
    assert view.foreseen_s["rows"] == view.foreseen_s["none 0"], "both to the first"
    assert two.mean_s(FOLLOW) == pytest.approx(0.1, rel=0.05)


def test_how_fast_an_engine_is_by_itself_is_remembered_while_it_rests() -> None:
    experience = Experience()
    slower = EngineView(run_delay_share=0.0, pace=0.5)
    experience.see((replace(slower, pace=1.0), slower))
    assert experience.own == (1.0, 0.5)
    resting = (EngineView(others_share=0.0), EngineView(others_share=0.5))
    assert speeds(resting, experience.own) == (1.0, 0.25)
    for _ in range(100):
        experience.see(resting)
    assert experience.own[1] > 0.9, "so that it is asked again"


def test_two_engines_beside_neighbours_each_are_both_slow() -> None:
    """Though one is as fast as the other."""
    busy = EngineView(run_delay_share=0.5, pace=1.0)
    assert speeds((busy, busy)) == (0.5, 0.5)
    assert speeds((replace(busy, run_delay_share=0.0), replace(busy, pace=0.5))) == (1.0, 0.5)
    old = replace(busy, run_delay_share=0.0)
    assert speeds((busy, old)) == (0.5, 0.5), "as fast as the one that has half of its core"


def test_an_illegal_action_changes_nothing() -> None:
    made = world()
    spatial = NAMES.index("spatial")
    assert not made.legal(spatial)
    assert made.step(spatial).view.in_force == "none 0"


def test_players_that_look_are_better_than_those_that_do_not() -> None:
    profiles = [profile(alone_s=seconds) for seconds in (0.01, 0.05, 0.2)]
    scores = {
        p.name: score(p, profiles, seed=5, episodes=10) for p in (Fixed(0), Share(), Greedy())
    }
    assert scores["share"] > scores["always none 0"] + 0.1
    assert scores["greedy"] > scores["always none 0"] + 0.1


def test_the_agent_learns_to_split() -> None:
    profiles = [profile(str(seconds), alone_s=seconds) for seconds in (0.02, 0.05, 0.1, 0.2)]
    trained = train(profiles, seed=0, steps=3000, points=2, episodes=5)
    fixed = max(
        score(player, profiles[3:], seed=9, episodes=8)
        for player in baselines(np.random.default_rng(0))
        if isinstance(player, Fixed) and player.action != FOLLOW
    )
    assert score(Learned(trained.agent), profiles[3:], seed=9, episodes=8) > fixed
    assert [point.step for point in trained.curve] == [1500, 3000]
    assert trained.kept in trained.curve


@pytest.mark.soak
def test_the_agent_learns_what_estimates_do_not_tell() -> None:
    """Rows in a row are costly here, and every second row is not; both are foreseen alike."""

    def misleading(alone_s: float) -> Profile:
        splits = {
            name: parts if name == "interleaved" else replace(parts, joined_s=alone_s)
            for name, parts in profile(alone_s=alone_s).splits.items()
        }
        return replace(profile(str(alone_s), alone_s=alone_s), splits=splits)

    profiles = [misleading(seconds) for seconds in (0.02, 0.05, 0.1, 0.2)]
    trained = train(profiles, seed=0, steps=3000, points=2, episodes=5).agent
    fresh = Dqn.fresh(len(INPUTS), len(NAMES), 0, prior=foreseen)
    learned, untaught = (
        score(Learned(dqn), profiles[3:], seed=9, episodes=8) for dqn in (trained, fresh)
    )
    assert learned > untaught


def test_the_environment_keeps_gymnasiums_contract(tmp_path: Path) -> None:
    import gymnasium
    from gymnasium.utils.env_checker import check_env

    from gearshift.sim.split_env import STEPS

    path = tmp_path / "profiles.json"
    write_profiles(path, [profile()], {"seed": 0})
    assert read_profiles(path) == [profile()]
    env = gymnasium.make("gearshift/Split-v0", profiles=read_profiles(path))
    check_env(env.unwrapped)
    check_env(gymnasium.make("gearshift/Split-v0").unwrapped)  # by the regions that are shipped
    env.reset(seed=3)
    for step in range(STEPS):
        _, _, ended, cut, told = env.step(env.action_space.sample(told_mask(env)))
        assert not ended
        assert cut == (step + 1 == STEPS)
        assert set(told["reward_parts"]) == {"time", "balance", "transfer", "memory"}


def told_mask(env: Any) -> np.ndarray:
    return np.asarray(env.unwrapped.action_masks(), np.int8)


def test_what_is_earned_in_the_environment_can_be_weighted() -> None:
    from gearshift.sim.split_env import SplitEnv

    def parts(weights: SplitWeights | None) -> dict[str, float]:
        env = SplitEnv([profile()], weights)
        env.reset(seed=3)
        return dict(env.step(np.int64(NAMES.index("rows 1:1")))[-1]["reward_parts"])

    usual, other = parts(None), parts(SplitWeights(time=2.0, balance=0.0, transfer=0.05))
    assert other["time"] == pytest.approx(2 * usual["time"])
    assert other["balance"] == 0
    assert other["transfer"] == usual["transfer"]


@pytest.mark.parametrize("name", ENVIRONMENTS)
def test_environments_are_known_once_the_simulator_is_imported(name: str) -> None:
    code = f"import gymnasium\nimport gearshift.sim\ngymnasium.make({name!r}).reset(seed=0)\n"
    subprocess.run([sys.executable, "-c", code], check=True, timeout=120)


@pytest.mark.parametrize("alone_s", [0.0, -0.1, math.nan, math.inf])
def test_a_profile_that_takes_no_time_is_refused(tmp_path: Path, alone_s: float) -> None:
    path = tmp_path / "odd.json"
    write_profiles(path, [replace(profile("first"), alone_s=alone_s)], {})
    with pytest.raises(UsageError, match=r"odd\.json' holds no profiles: alone_s of first is"):
        read_profiles(path)


@pytest.mark.parametrize(
    ("odd", "words"),
    [({"joined_s": math.nan}, "no number"), ({"parts_s": (0.0, 0.0)}, "rows of first is")],
)
def test_a_split_that_takes_no_time_is_refused(
    tmp_path: Path, odd: dict[str, Any], words: str
) -> None:
    path, sound = tmp_path / "odd.json", profile("first")
    splits = {**sound.splits, "rows": replace(sound.splits["rows"], **odd)}
    write_profiles(path, [replace(sound, splits=splits)], {})
    with pytest.raises(UsageError, match=words):
        read_profiles(path)


def four() -> list[Profile]:
    return [profile(str(seconds), alone_s=seconds) for seconds in (0.02, 0.05, 0.1, 0.2)]


def test_the_curve_and_the_standings_are_of_the_same_traces() -> None:
    trained = train(four(), seed=0, steps=1000, points=2, episodes=3)
    found = standings(trained.agent, four(), seed=TEST_SEED, steps=1000, episodes=3)
    assert found["dqn"] == trained.kept.of_oracle
    assert list(found) == sorted(found, key=lambda name: -found[name])


class Pupil:
    """Remembers of each lesson which region it was about, by what that takes."""

    name = "pupil"

    def __init__(self) -> None:
        self.lessons: list[float] = []

    def choose(self, view: SplitView) -> int:
        return 0

    def settled(self, view: SplitView) -> int:
        return 0

    def learn(self, view: SplitView, action: int, reward: float, after: SplitView) -> None:
        self.lessons.append(view.alone_s)


def test_who_learns_as_it_goes_is_taught_as_the_agent_was(monkeypatch: pytest.MonkeyPatch) -> None:
    pupil = Pupil()
    monkeypatch.setattr("gearshift.sim.split_training.baselines", lambda random: [pupil, Share()])
    dqn = Dqn.fresh(len(INPUTS), len(NAMES), 0, prior=foreseen)
    found = standings(dqn, four(), seed=3, steps=1000, episodes=2)
    assert set(found) == {"pupil", "share", "dqn"}
    assert len(pupil.lessons) == 1000 + 2 * EPISODE
    assert 0.2 not in pupil.lessons[:1000], "that one is for the test"
    assert set(pupil.lessons[1000:]) == {0.2}
