"""The unroll agent is trained in the simulator, kept, read again, and stands beside others."""

from pathlib import Path

import numpy as np
import pytest

from gearshift.decide.learn.ppo import Actor, PpoSettings
from gearshift.decide.unroll.actions import CHOICES, STAY, mask
from gearshift.decide.unroll.agent import ROLE
from gearshift.decide.unroll.players import Fixed, Greedy, Learned
from gearshift.decide.unroll.reward import UnrollWeights
from gearshift.decide.unroll.state import features
from gearshift.plan.unroll import AT_ONCE, ROLLED
from gearshift.sim.learning import TEST_SEED, Trained
from gearshift.sim.unroll_cases import ARCHITECTURES, divided, draw_episode
from gearshift.sim.unroll_profiles import Kernels
from gearshift.sim.unroll_training import Trace, best_fixed, score, standings, traces, train
from gearshift.sim.unroll_world import UnrollWorld
from tests.profiles import kernels

QUICK = PpoSettings(hidden=(32,), worlds=4, rollout=200, batch=100, epochs=4)
KERNELS = Kernels.of(kernels())


def trained(seed: int) -> Trained[Actor]:
    return train(kernels(), seed=seed, steps=400, settings=QUICK, points=2, episodes=1)


class Staying:
    """An actor that changes nothing."""

    def act(self, state: np.ndarray, legal: np.ndarray) -> int:
        return STAY


@pytest.fixture(scope="module")
def made() -> Trained[Actor]:
    return trained(seed=1)


def drawn(episodes: int = 2) -> list[Trace]:
    _, test_on = divided()
    return list(traces(test_on, KERNELS, seed=5, episodes=episodes))


def test_training_ends_and_tells_how_it_went(made: Trained[Actor]) -> None:
    assert [point.step for point in made.curve] == [200, 400]
    assert all(0 < point.of_oracle < 1.05 for point in made.curve)
    assert made.kept in made.curve
    assert made.agent.online.is_sound
    assert made.agent.critic is not None


def test_the_same_seed_gives_the_same_agent(made: Trained[Actor]) -> None:
    one = made.agent.online.parameters
    other, another = (trained(seed).agent.online.parameters for seed in (1, 2))
    assert all(map(np.array_equal, one, other))
    assert not all(map(np.array_equal, one, another))


def test_an_agent_that_was_kept_chooses_the_same(made: Trained[Actor], tmp_path: Path) -> None:
    path, agent = tmp_path / "agent.safetensors", made.agent
    ROLE.write(path, agent, {"seed": 0})
    kept = ROLE.read(path)
    again = Actor(kept.network, kept.critic)
    random = np.random.default_rng(0)
    for _ in range(20):
        view = UnrollWorld(random).begin(draw_episode(ARCHITECTURES, KERNELS, random, mixed=1.0))
        assert again.best(features(view), mask(view)) == agent.best(features(view), mask(view))


def test_episodes_are_the_same_for_all_players() -> None:
    on = drawn()
    assert score(Fixed(ROLLED), on) == score(Fixed(ROLLED), on)
    again = drawn()
    assert [trace.oracle_s for trace in on] == [trace.oracle_s for trace in again]
    assert [trace.episode.calls for trace in on] == [trace.episode.calls for trace in again]


def test_an_agent_learns_nothing_while_it_is_scored(made: Trained[Actor]) -> None:
    agent, on = made.agent, drawn()
    before = [parameter.copy() for parameter in agent.online.parameters]
    assert score(Learned(agent), on) == score(Learned(agent), on)
    assert all(map(np.array_equal, before, agent.online.parameters))


def test_nobody_is_better_than_the_oracle() -> None:
    on = drawn(5)
    for player in (*(Fixed(steps) for steps in CHOICES), Greedy()):
        assert 0 < score(player, on).share <= 1.02
    assert score(Fixed(AT_ONCE), on).switches == 0
    assert score(Greedy(), on).switches > 0


@pytest.mark.capability("rnn.ppo")
def test_all_players_stand_beside_each_other(made: Trained[Actor]) -> None:
    found = standings(made.agent, kernels(), seed=9, episodes=2)
    fixed = {f"always {steps}" for steps in CHOICES}
    assert found.keys() == fixed | {"ppo", "greedy", "bandit"}
    assert list(found) == sorted(found, key=lambda name: -found[name].share)
    (best, *_) = [name for name in fixed if found[name].vs_best_fixed == 1]
    assert found["ppo"].vs_best_fixed == pytest.approx(found["ppo"].share / found[best].share)


def test_who_changes_settings_begins_with_the_fixed_one_that_was_best_before() -> None:
    best = best_fixed(KERNELS, UnrollWeights(), 2)
    stays = Learned(Staying())  # type: ignore[arg-type]
    stays.start = best.start
    assert score(stays, drawn()) == score(best, drawn())


def test_who_is_inclined_to_stay_leaves_for_what_is_much_likelier(
    made: Trained[Actor],
) -> None:
    random, agent = np.random.default_rng(0), made.agent
    left: list[int] = []
    for by in (0.0, 2.0, 1e6):
        inclined, count = agent.inclined(STAY, by), 0
        for _ in range(20):
            view = UnrollWorld(random).begin(draw_episode(ARCHITECTURES, KERNELS, random))
            state, legal = features(view), mask(view)
            action = inclined.best(state, legal)
            logits = agent.online(state[None])[0]
            assert action == STAY or logits[action] > logits[STAY] + by
            count += action != STAY
        left.append(count)
    assert left[-1] == 0
    assert agent.inclined(STAY, 1.0).online.biases[-1][STAY] == agent.online.biases[-1][STAY] + 1


def test_the_curve_and_the_standings_are_of_the_same_traces(made: Trained[Actor]) -> None:
    found = standings(made.agent, kernels(), seed=1 + TEST_SEED, episodes=1)
    assert found["ppo"].share == made.kept.of_oracle


@pytest.mark.soak
def test_the_agent_learns_which_setting_a_layer_needs() -> None:
    """What is best depends on lengths, engines and limits: no setting is for all."""
    agent = train(kernels(), seed=0, steps=40_000, points=4, episodes=20).agent
    found = standings(agent, kernels(), seed=9, episodes=40)
    assert found["ppo"].vs_best_fixed > 1
