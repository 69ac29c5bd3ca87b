"""Those who choose the settings of recurrent layers: what each does, who learns, what is kept."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from gearshift.decide.learn.agent import BETWEEN_CALLS, LESSONS
from gearshift.decide.learn.network import Network
from gearshift.decide.learn.ppo import Actor, Rollout
from gearshift.decide.unroll.actions import CHOICES, NAMES, STAY, applied, mask, number_of
from gearshift.decide.unroll.agent import ROLE, Agent
from gearshift.decide.unroll.players import (
    Bandit,
    Fixed,
    Greedy,
    Learned,
    Player,
    baselines,
    toward,
)
from gearshift.decide.unroll.state import INPUTS, features
from gearshift.decide.unroll.view import UnrollView
from gearshift.errors import CheckpointError
from gearshift.plan.unroll import AT_ONCE, ROLLED, Steps
from tests.decide.unroll.views import measured, view

BY_2, BY_16 = Steps(then=2), Steps(then=16)
BEST = CHOICES.index(BY_16)


def taken(before: UnrollView, action: int) -> UnrollView:
    """Each layer takes longer, the further its setting is from sixteen steps at a time."""
    settings = applied(before.settings, action)
    off = sum(abs(CHOICES.index(steps) - BEST) for steps in settings)
    layers = tuple(
        replace(layer, steps=steps) for layer, steps in zip(before.layers, settings, strict=True)
    )
    return replace(before, layers=layers, took_s=measured(1e-3 * (1 + off)))


def played(player: Player, start: UnrollView, calls: int = 60) -> UnrollView:
    now = start
    for _ in range(calls):
        action = player.choose(now)
        assert mask(now)[action], NAMES[action]
        after = taken(now, action)
        assert after.took_s.value is not None
        player.learn(now, action, -after.took_s.value, after)
        now = after
    return now


def actor(seed: int = 0) -> Actor:
    random = np.random.default_rng(seed)
    networks = [Network.drawn((len(INPUTS), 16, size), random) for size in (len(NAMES), 1)]
    return Actor(networks[0], networks[1])


def test_on_the_way_to_a_setting_layers_change_one_after_the_other() -> None:
    now, named = view((ROLLED, BY_2, AT_ONCE)), []
    while (action := toward(now, BY_2)) != STAY:
        named.append(NAMES[action])
        now = taken(now, action)
    assert named == ["layer 0 by 2", "layer 2 by 2"]


def test_one_setting_from_beginning_to_end() -> None:
    assert played(Fixed(BY_2), view()).settings == view().settings
    assert Fixed(BY_2).name == "always by 2"


def test_greedy_finds_what_takes_least_from_one_setting_to_the_next() -> None:
    found = played(Greedy(), view((BY_2, AT_ONCE), num_steps=200), calls=80)
    assert found.settings == (BY_16, BY_16)


def test_the_bandit_finds_the_best_setting_for_all_layers() -> None:
    bandit = Bandit(np.random.default_rng(0))
    played(bandit, view(num_steps=200), calls=600)
    (known,) = bandit.means.values()
    assert known.keys() == set(CHOICES)
    assert max(known, key=lambda steps: known[steps][1]) == BY_16


def test_nobody_goes_beyond_the_memory_limit() -> None:
    start = view((ROLLED, ROLLED), num_steps=200)
    limit = start.footprint.held_bytes((BY_2, BY_2))
    for player in (*baselines(np.random.default_rng(0)), Learned(actor())):
        found = played(player, replace(start, memory_limit_bytes=limit))
        assert found.footprint.held_bytes(found.settings) <= limit


def test_baselines_have_names_of_their_own() -> None:
    names = [player.name for player in baselines(np.random.default_rng(0))]
    assert len(set(names)) == len(names) == len(CHOICES) + 2


def test_the_agent_takes_the_likeliest_of_what_is_legal() -> None:
    sure = actor()
    sure.online.weights[-1][:] = 0
    sure.online.biases[-1][:] = np.arange(len(NAMES))
    assert Learned(sure).choose(view()) == STAY
    sure.online.biases[-1][STAY] = -1
    now = view()
    likeliest = Learned(sure).choose(now)
    assert likeliest == max(np.flatnonzero(mask(now)[:STAY]))


def test_the_agent_explores_among_what_is_legal() -> None:
    curious = replace(actor(), epsilon=1.0)
    now = view((ROLLED, AT_ONCE))
    chosen = {Learned(curious).choose(now) for _ in range(300)}
    assert chosen <= set(np.flatnonzero(mask(now)))
    assert len(chosen) > 10


def test_G1_logits_that_are_no_numbers_are_caught_before_use() -> None:
    broken = actor()
    broken.online.weights[-1][:] = np.nan
    with pytest.raises(FloatingPointError):
        Learned(broken).choose(view())


def test_what_the_agent_lives_through_is_collected() -> None:
    rollout = Rollout(8)
    played(Learned(actor(), rollout=rollout), view(), calls=20)
    assert rollout.full
    assert len(rollout.steps) == 8
    lived = list(rollout.steps)
    assert np.array_equal(lived[0].next_state, lived[1].state)
    assert all(step.mask[step.action] for step in lived)


@pytest.mark.capability("rnn.ppo")
def test_the_agent_is_taught_from_live_calls_and_what_it_learned_is_kept(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    shipped = tmp_path / "agent.safetensors"
    monkeypatch.setattr("gearshift.decide.unroll.agent.SHIPPED", shipped)
    with pytest.raises(CheckpointError, match="no such file"):
        Agent(tmp_path, "here")
    ROLE.write(shipped, actor(), {"seed": 0})
    agent = Agent(tmp_path, "here")
    player = Learned(agent.actor, rollout=agent.rollout)
    assert not agent.learn(), "nothing lived through yet"
    played(player, view(), calls=BETWEEN_CALLS.rollout)
    assert agent.learn()
    assert agent.lessons == BETWEEN_CALLS.rollout >= LESSONS
    assert not agent.rollout.steps
    agent.keep()
    kept = Agent(tmp_path, "here")
    assert kept.lessons == agent.lessons
    now = view()
    state = features(now)[None]
    assert np.array_equal(kept.actor.online(state), agent.actor.online(state))
    assert not np.array_equal(kept.actor.online(state), actor().online(state))
    assert kept.actor.critic is not None
    assert kept.actor.best(state[0], mask(now)) == agent.actor.best(state[0], mask(now))


def test_E5_a_bad_checkpoint_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "agent.safetensors"
    ROLE.write(path, actor(), {"seed": 0})
    assert ROLE.read(path).critic is not None
    path.write_bytes(path.read_bytes()[:-40])
    with pytest.raises(CheckpointError, match="cannot be read"):
        ROLE.read(path)
    odd = actor()
    odd.critic = Network.drawn((len(INPUTS), 8, 2), np.random.default_rng(0))
    ROLE.write(path, odd, {"seed": 0})
    with pytest.raises(CheckpointError, match="sizes"):
        ROLE.read(path)


def test_number_of_an_action_is_that_of_its_name() -> None:
    assert NAMES[number_of(5, AT_ONCE)] == "layer 5 all at once"
