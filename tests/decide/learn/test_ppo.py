"""PPO: it learns what can be learned, is the same in numpy, and is taught again from what it lived
through.
"""

import sys
from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces

from gearshift.decide.learn.network import Network
from gearshift.decide.learn.ppo import Actor, Learner, Lived, PpoSettings, Rollout, taught
from gearshift.errors import MissingExtraError

QUICK = PpoSettings(
    hidden=(32,), discount=0.5, rate=3e-3, worlds=4, rollout=200, epochs=5, batch=50
)
ALL = np.ones(3, bool)


def legal(named: int) -> np.ndarray:
    return np.arange(3) != (named + 1) % 3


class Named(gymnasium.Env[np.ndarray, np.int64]):
    """The state names the action that earns something; one of the others is illegal."""

    observation_space = spaces.Box(-1, 1, (3,), np.float32)
    action_space = spaces.Discrete(3)

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[np.ndarray, dict[str, Any]]:
        super().reset(seed=seed)
        self.count = 0
        return self._draw(), {}

    def step(self, action: np.int64) -> tuple[np.ndarray, float, bool, bool, dict[str, Any]]:
        assert self.action_masks()[action]
        earned, self.count = float(action == self.named), self.count + 1
        return self._draw(), earned, False, self.count == 10, {}

    def action_masks(self) -> np.ndarray:
        return legal(self.named)

    def _draw(self) -> np.ndarray:
        self.named = int(self.np_random.integers(3))
        return np.eye(3, dtype=np.float32)[self.named]


def learned(seed: int, rollouts: int) -> Actor:
    learner = Learner(Named, QUICK, seed)
    lived = learner.lived()
    for _ in range(rollouts * QUICK.rollout):
        next(lived)
    return learner.actor()


def test_it_learns_which_action_fits_the_state() -> None:
    actor = learned(0, rollouts=12)
    states = np.eye(3, dtype=np.float32)
    assert [actor.best(states[named], legal(named)) for named in range(3)] == [0, 1, 2]


def test_an_illegal_action_is_never_taken() -> None:
    actor = Actor(Network.drawn((3, 8, 3), np.random.default_rng(0)), epsilon=0.5)
    state, mask = np.ones(3, np.float32), np.array([True, False, True])
    assert {actor.act(state, mask) for _ in range(100)} <= {0, 2}


def test_the_same_seed_gives_the_same_agent() -> None:
    one, other = (learned(3, rollouts=1).online.parameters for _ in range(2))
    assert all(map(np.array_equal, one, other))


def test_in_numpy_it_is_what_torch_learned() -> None:
    import torch

    learner = Learner(Named, QUICK, seed=0)
    actor = learner.actor()
    states = np.random.default_rng(0).standard_normal((5, 3)).astype(np.float32)
    policy = learner._model.policy
    with torch.no_grad():
        latent = policy.mlp_extractor.policy_net(torch.from_numpy(states))
        logits = policy.action_net(latent).numpy()
        values = policy.predict_values(torch.from_numpy(states)).numpy()
    assert np.allclose(actor.online(states), logits, atol=1e-5)
    assert actor.critic is not None
    assert np.allclose(actor.critic(states), values, atol=1e-5)


def lived(reward: float, action: int = 0, **changes: Any) -> Lived:
    state = np.ones(3, np.float32)
    usual = {"state": state, "next_state": state, "mask": ALL, "action": action}
    return Lived(**{**usual, "reward": reward, **changes})


def fresh() -> Actor:
    random = np.random.default_rng(0)
    networks = [Network.drawn((3, 16, size), random) for size in (3, 1)]
    return Actor(networks[0], networks[1], epsilon=0.1)


@pytest.mark.parametrize("critic", [True, False])
def test_what_earned_more_in_live_calls_becomes_likelier(critic: bool) -> None:
    actor, rollout = fresh(), Rollout(64)
    if not critic:
        actor.critic = None
    for number in range(64):
        rollout.add(lived(float(number % 3 == 1), number % 3))
    before = [parameter.copy() for parameter in actor.online.parameters]
    settings = PpoSettings(discount=0.0, rate=3e-3, rollout=64, batch=32, entropy=0.0)
    new = taught(actor, rollout, settings, seed=0)
    state = np.ones((1, 3), np.float32)
    gained = (new.online(state) - actor.online(state))[0]
    assert np.argmax(gained) == 1
    assert all(map(np.array_equal, before, actor.online.parameters)), "the old one is as it was"
    assert new.critic is not None
    assert new.epsilon == actor.epsilon
    assert new.online.sizes == actor.online.sizes


def test_calls_that_do_not_follow_from_each_other_are_learned_from_all_the_same() -> None:
    rollout = Rollout(8)
    for number in range(8):
        state = np.full(3, number % 4, np.float32)
        rollout.add(lived(1.0, state=state, next_state=state + 1))
    settings = PpoSettings(rollout=8, batch=8, epochs=1)
    assert taught(fresh(), rollout, settings, seed=0).online.is_sound


def test_what_is_no_number_or_was_illegal_is_not_learned_from() -> None:
    rollout, nothing = Rollout(4), np.full(3, np.nan, np.float32)
    assert not rollout.add(lived(float("nan")))
    assert not rollout.add(lived(1.0, state=nothing))
    assert not rollout.add(lived(1.0, next_state=nothing))
    assert not rollout.add(lived(1.0, action=1, mask=np.array([True, False, True])))
    assert rollout.add(lived(1.0))
    assert len(rollout.steps) == 1


def test_threads_are_left_as_they_were() -> None:
    import torch

    before = torch.get_num_threads()
    rollout = Rollout(4)
    for _ in range(4):
        rollout.add(lived(1.0))
    taught(fresh(), rollout, PpoSettings(rollout=4, batch=4, epochs=1), seed=0)
    assert torch.get_num_threads() == before


def test_without_the_extra_it_is_said_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "sb3_contrib", None)
    with pytest.raises(MissingExtraError, match=r"gearshift\[rl\]"):
        Learner(Named, QUICK, seed=0)
    with pytest.raises(MissingExtraError, match=r"gearshift\[rl\]"):
        taught(fresh(), Rollout(4), QUICK, seed=0)
