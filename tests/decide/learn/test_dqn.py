"""Deep Q-learning: it learns what can be learned, and never chooses what is masked."""

import numpy as np
import pytest

from gearshift.decide.learn.dqn import Dqn, Settings
from gearshift.decide.learn.network import Network
from gearshift.decide.learn.replay import Replay

QUICK = Settings(hidden=(32,), epsilon_steps=800, warm_up=50, capacity=2000, rate=3e-3)


def test_the_gradient_is_the_slope_of_the_loss() -> None:
    random = np.random.default_rng(0)
    network = Network.drawn((5, 7, 3), random)
    states, aims = random.standard_normal((16, 5)), random.standard_normal((16, 3))

    def loss() -> float:
        return float(((network(states) - aims) ** 2).mean())

    before = loss()
    for _ in range(300):
        slopes = 2 * (network(states) - aims) / aims.size
        network.descend(states, slopes, 1e-2)
    assert loss() < 0.2 * before


@pytest.mark.capability("split.dqn")
def test_it_learns_which_action_fits_the_state() -> None:
    """A contextual problem with a mask: of the actions legal, the one the state names."""
    random = np.random.default_rng(1)
    dqn = Dqn.fresh(3, 3, seed=0, settings=QUICK)

    def draw() -> tuple[np.ndarray, np.ndarray]:
        mask = np.ones(3, bool)
        mask[random.integers(3)] = random.random() < 0.5
        return np.eye(3, dtype=np.float32)[random.integers(3)], mask

    state, mask = draw()
    for _ in range(3000):
        action = dqn.act(state, mask)
        assert mask[action]
        reward = 1.0 if action == state.argmax() else 0.0
        following, legal = draw()
        dqn.live(state, action, reward, following, legal)
        state, mask = following, legal
    right = 0
    for _ in range(200):
        state, mask = draw()
        wanted = int(state.argmax())
        if mask[wanted]:
            right += dqn.best(state, mask) == wanted
        else:
            right += bool(mask[dqn.best(state, mask)])
    assert right == 200
    assert dqn.epsilon == pytest.approx(QUICK.epsilon_least)


@pytest.mark.capability("split.dqn")
def test_the_target_looks_ahead_past_masked_actions() -> None:
    """Two states in a row: going right is worth only what can be had legally there."""
    dqn = Dqn.fresh(2, 2, seed=0, settings=Settings(hidden=(16,), discount=0.9, warm_up=20))
    first, second = np.array([1.0, 0.0]), np.array([0.0, 1.0])
    free, only_left = np.array([True, True]), np.array([True, False])
    for _ in range(1500):
        dqn.live(first, 0, 0.0, second, only_left)
        dqn.live(second, 0, 0.5, first, free, end=True)
        dqn.live(second, 1, 5.0, first, free, end=True)
    values = dqn.values(first, free)
    assert values[0] == pytest.approx(0.45, abs=0.1)
    assert dqn.values(second, only_left)[1] == -np.inf


@pytest.mark.capability("split.dqn")
def test_the_target_follows_slowly() -> None:
    dqn = Dqn.fresh(1, 1, seed=0, settings=QUICK)
    begun = [parameter.copy() for parameter in dqn.online.parameters]
    state, mask = np.zeros(1), np.ones(1, bool)
    for _ in range(QUICK.warm_up + 20):
        dqn.live(state, 0, 5.0, state, mask, end=True)

    def moved(network: Network) -> float:
        pairs = zip(network.parameters, begun, strict=True)
        return max(float(np.abs(now - before).max()) for now, before in pairs)

    assert 0 < moved(dqn.target) < 0.5 * moved(dqn.online)


@pytest.mark.capability("split.dqn")
def test_what_it_learns_stays_near_what_was_foreseen() -> None:
    """An action foreseen to be worth less by more than that is never the best, whatever it gave."""
    near = Settings(hidden=(16,), warm_up=20, most=0.2, rate=1e-2)
    foreseen = np.array([[0.0, -0.1, -1.0]])
    dqn = Dqn.fresh(1, 3, seed=0, settings=near, prior=lambda states: foreseen)
    state, mask = np.zeros(1), np.ones(3, bool)
    for number in range(600):
        dqn.live(state, number % 3, float(number % 3), state, mask, end=True)
    assert dqn.values(state, mask) == pytest.approx([0.0, 0.1, -0.8], abs=0.02)
    assert dqn.best(state, mask) == 1


def test_what_is_no_number_is_never_learned_from() -> None:
    dqn = Dqn.fresh(2, 2, seed=0, settings=QUICK)
    good, mask = np.zeros(2), np.ones(2, bool)
    for bad in (float("nan"), float("inf")):
        dqn.live(good, 0, bad, good, mask)
        dqn.live(np.array([bad, 0.0]), 0, 1.0, good, mask)
        dqn.live(good, 0, 1.0, np.array([0.0, bad]), mask)
    assert dqn.replay.count == 0
    assert dqn.online.is_sound


@pytest.mark.capability("split.dqn")
def test_only_the_last_steps_are_remembered() -> None:
    replay = Replay(4, 1, 2)
    for number in range(10):
        state = np.array([float(number)])
        replay.add(state, 0, float(number), state, np.ones(2, bool), end=False)
    drawn = replay.draw(100, np.random.default_rng(0))
    assert set(drawn.rewards) == {6.0, 7.0, 8.0, 9.0}


def test_the_same_seed_gives_the_same_agent() -> None:
    def lived() -> list[float]:
        dqn = Dqn.fresh(2, 2, seed=7, settings=QUICK)
        state, mask = np.zeros(2), np.ones(2, bool)
        for number in range(300):
            dqn.live(state, dqn.act(state, mask), float(number % 3), state, mask)
        return [float(parameter.sum()) for parameter in dqn.online.parameters]

    assert lived() == lived()
