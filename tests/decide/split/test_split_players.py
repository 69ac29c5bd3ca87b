"""Those who choose a split: what each goes by, and what it settles on."""

from dataclasses import replace
from math import log

import numpy as np
import pytest

from gearshift.decide.learn.dqn import Dqn
from gearshift.decide.split.actions import NAMES
from gearshift.decide.split.players import Bandit, Foreseen, Greedy, Learned, baselines
from gearshift.decide.split.view import INPUTS, EngineView, SplitView, features, foreseen

FORESEEN_S = {"none 0": 0.1, "rows": 0.05, "rows 1:1": 0.06, "rows 2:1": 0.07}
VIEW = SplitView(
    engines=(EngineView(run_delay_share=0.0), EngineView(run_delay_share=0.0)),
    speeds=(1.0, 1.0),
    kind="conv",
    dims=(8, 64, 56, 56),
    num_rows=8,
    flops=1e9,
    moved_bytes=1e8,
    item_bytes=4,
    in_force="none 0",
    alone_s=0.1,
    foreseen_s=FORESEEN_S,
    estimates_s=FORESEEN_S,
)
ROWS, EQUAL = NAMES.index("rows"), NAMES.index("rows 1:1")


def fresh(**settings: float) -> Learned:
    return Learned(Dqn.fresh(len(INPUTS), len(NAMES), 0, prior=foreseen), **settings)


def test_a_bandit_settles_on_the_best_it_tried_not_on_what_it_would_try_next() -> None:
    bandit = Bandit(np.random.default_rng(0))
    assert bandit.settled(VIEW) == NAMES.index("none 0"), "what is in force, before it tried any"
    for reward in (0.2, 0.5):
        action = bandit.choose(VIEW)
        bandit.learn(VIEW, action, reward, VIEW)
    assert bandit.choose(VIEW) not in (ROWS, EQUAL), "there is more to try"
    assert bandit.settled(VIEW) == EQUAL


def test_an_agent_that_learns_settles_without_a_wager() -> None:
    learning = fresh(learning=True)
    chosen = {learning.choose(VIEW) for _ in range(50)}
    assert len(chosen) > 1, "it tries"
    assert {learning.settled(VIEW) for _ in range(50)} == {fresh().choose(VIEW)}


def test_estimates_corrected_by_what_came_of_them_are_a_player_of_their_own() -> None:
    view = replace(VIEW, estimates_s={**FORESEEN_S, "rows": 0.2})
    assert Foreseen().choose(view) == ROWS
    assert Greedy().choose(view) == EQUAL
    names = [player.name for player in baselines(np.random.default_rng(0))]
    assert {"greedy", "greedy, uncorrected", "bandit"} <= set(names)
    assert len(set(names)) == len(names)


def test_all_players_settle_on_what_is_legal() -> None:
    for player in (*baselines(np.random.default_rng(0)), fresh(), fresh(learning=True)):
        assert NAMES[player.settled(VIEW)] in VIEW.estimates_s


@pytest.mark.parametrize("time", [1.0, 3.0])
def test_time_counts_for_as_much_in_what_is_foreseen_as_in_what_is_earned(time: float) -> None:
    """What was foreseen of the best earns nothing beyond it, whatever time counts for."""
    heard: list[float] = []

    class Heard(Dqn):
        def live(self, state: object, action: int, reward: float, *after: object) -> None:
            heard.append(reward)

    player = Learned(Heard(fresh().dqn.online), learning=True, time=time)
    player.learn(VIEW, ROWS, -time * log(0.05 / VIEW.alone_s), VIEW)
    assert heard == pytest.approx([0.0])
    worth = foreseen(features(VIEW)[None], time)[0]
    assert worth[NAMES.index("none 0")] == pytest.approx(-time * log(2))
    assert worth[ROWS] == 0
