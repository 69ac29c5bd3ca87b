"""The simulator: the same from the same seed, and as machines are."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from gearshift.decide.split.actions import ACTIONS, FOLLOW, NAMES
from gearshift.decide.split.players import Fixed, Greedy, Learned, Share, baselines
from gearshift.decide.split.view import INPUTS, features, mask
from gearshift.sim.profiles import Parts, Profile, read_profiles, write_profiles
from gearshift.sim.split_training import score, train
from gearshift.sim.split_world import SplitWorld


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
    view = world().view()
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
    equal = NAMES.index("rows 1:1")
    assert made.mean_s(equal) == pytest.approx(0.0505)
    made.neighbours = np.array([0, 1])
    assert made.mean_s(equal) == pytest.approx(0.1005)
    assert made.mean_s(NAMES.index("rows 2:1")) == pytest.approx(0.1 * 2 / 3 + 0.0005)
    assert made.mean_s(FOLLOW) == pytest.approx(0.1 * 2 / 3 + 0.0005)
    took_s = [made._call(equal)[0] for _ in range(400)]
    assert np.mean(took_s) == pytest.approx(0.1, rel=0.1)


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
    assert score(Learned(trained.dqn), profiles[3:], seed=9, episodes=8) > fixed
    assert [point.step for point in trained.curve] == [1500, 3000]


def test_the_environment_keeps_gymnasiums_contract(tmp_path: Path) -> None:
    import gymnasium
    from gymnasium.utils.env_checker import check_env

    from gearshift.sim.split_env import ID, STEPS

    path = tmp_path / "profiles.json"
    write_profiles(path, [profile()], {"seed": 0})
    assert read_profiles(path) == [profile()]
    env = gymnasium.make(ID, profiles=read_profiles(path))
    check_env(env.unwrapped)
    env.reset(seed=3)
    for step in range(STEPS):
        _, _, ended, cut, told = env.step(env.action_space.sample(told_mask(env)))
        assert not ended
        assert cut == (step + 1 == STEPS)
        assert set(told["reward_parts"]) == {"time", "balance", "transfer", "memory"}


def told_mask(env: Any) -> np.ndarray:
    return np.asarray(env.unwrapped.action_masks(), np.int8)
