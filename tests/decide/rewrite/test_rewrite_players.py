"""Those who choose a region's rewrite: what each measures, what each takes, who learns."""

from dataclasses import replace
from math import log
from pathlib import Path

import numpy as np
import pytest

from gearshift.decide.learn.dqn import Dqn
from gearshift.decide.rewrite.actions import ENTRIES, MAX_MEASUREMENTS, enough
from gearshift.decide.rewrite.agent import ROLE, Agent
from gearshift.decide.rewrite.players import (
    Bandit,
    Learned,
    Measured,
    OneBackend,
    Player,
    Rule,
    baselines,
)
from gearshift.decide.rewrite.reward import (
    RewriteReward,
    RewriteWeights,
    moved_share,
    rewrite_reward,
)
from gearshift.decide.rewrite.state import INPUTS, foreseen, mask
from gearshift.decide.rewrite.view import RewriteView
from gearshift.errors import CheckpointError
from gearshift.plan.library import BY_NAME, LIBRARY, Build

ALL = frozenset(ENTRIES)
TAKES_S = {name: 1e-3 * (1 + 0.1 * index) for index, name in enumerate(ENTRIES)}
"""The first entry of the library is the fastest."""


def view(
    *, legal: frozenset[str] = ALL, in_force: str = "eager", compute_bound: bool = True
) -> RewriteView:
    return RewriteView(
        kind="conv",
        num_ops=4,
        flops=1e9,
        moved_bytes=1e7,
        set_bytes=4e6,
        read_bytes=1e6,
        made_bytes=2e6,
        compute_s=4e-4 if compute_bound else 1e-4,
        memory_s=1e-4 if compute_bound else 4e-4,
        in_force=in_force,
        legal=legal,
        seconds={in_force: TAKES_S[in_force]},
    )


def measured(before: RewriteView, **seconds: float) -> RewriteView:
    return replace(before, seconds={**before.seconds, **seconds})


def played(player: Player, start: RewriteView, takes_s: dict[str, float]) -> list[str]:
    """All it names, until it names one that was measured or that is enough."""
    before, named = start, []
    while True:
        entry = player.choose(before)
        assert entry in before.legal | before.seconds.keys()
        named.append(entry)
        end = entry in before.seconds
        after = before if end else measured(before, **{entry: takes_s[entry]})
        end = end or enough(after)
        earned = rewrite_reward(RewriteWeights(), view=before, entry=entry, after=after)
        player.learn(before, entry, earned.total, after, end=end)
        if end:
            return named
        before = after


def fresh(seed: int = 0) -> Dqn:
    return Dqn.fresh(len(INPUTS), len(ENTRIES), seed, ROLE.settings, foreseen)


def test_measured_greedy_measures_what_is_quick_to_build_and_takes_the_best() -> None:
    legal = frozenset({"eager", "onnxruntime", "openvino", "fusion", "tiles"})
    named = played(Measured(), view(legal=legal), {**TAKES_S, "openvino": 1e-4})
    assert named == ["onnxruntime", "openvino", "tiles", "openvino"]
    named = played(Measured(), view(), TAKES_S)
    assert len(named) == MAX_MEASUREMENTS
    assert all(BY_NAME[name].build is not Build.SLOW for name in named)


def test_one_backend_is_taken_whatever_it_takes() -> None:
    assert played(OneBackend("openvino"), view(), TAKES_S) == ["openvino"] * 2
    elsewhere = view(legal=frozenset({"eager", "tiles"}))
    assert played(OneBackend("openvino"), elsewhere, TAKES_S) == ["eager"]
    assert OneBackend("openvino").name == "always openvino"


@pytest.mark.parametrize(
    ("seen", "said"),
    [
        (view(), "fusion"),
        (view(compute_bound=False), "channels last"),
        (view(in_force="unrolled"), "unrolled"),
        (view(legal=ALL - {"fusion"}), "unrolled"),
        (view(legal=ALL - {"fusion", "unrolled"}), "onnxruntime"),
        (view(legal=frozenset({"eager"})), "eager"),
    ],
    ids=["compute", "memory", "stays", "next", "both", "none"],
)
def test_the_rule_goes_by_what_bounds_a_region(seen: RewriteView, said: str) -> None:
    assert Rule().choose(seen) == said


def test_the_bandit_learns_what_pays_for_a_kind_of_region() -> None:
    bandit = Bandit(np.random.default_rng(0))
    takes_s = {**TAKES_S, "tiles": 3e-4}
    for _ in range(200):
        played(bandit, view(), takes_s)
    last = [played(bandit, view(), takes_s) for _ in range(20)]
    assert sum(named == ["tiles", "tiles"] for named in last) >= 15
    other = bandit.gains[("conv", False, "eager")]
    assert not other, "of other regions nothing is known"


def test_every_player_names_what_may_be_chosen() -> None:
    players = [*baselines(np.random.default_rng(0)), Learned(fresh()), Learned(fresh(), "x", True)]
    assert len({player.name for player in players}) == len(players)
    for player in players:
        for start in (view(), view(compute_bound=False), view(legal=frozenset({"eager"}))):
            named = played(player, start, TAKES_S)
            assert len(named) <= MAX_MEASUREMENTS + 1


def test_the_agent_stays_with_a_backend_of_the_users_own_that_is_best() -> None:
    start = view(legal=frozenset({"eager"}))
    own = replace(start, in_force="mine", seconds={"mine": 1e-4, "eager": 1e-3})
    assert not mask(own).any()
    assert Learned(fresh()).choose(own) == "mine"


def test_G1_values_that_are_no_numbers_are_caught_before_use() -> None:
    dqn = fresh()
    dqn.online.weights[-1][:] = np.nan
    with pytest.raises(FloatingPointError):
        Learned(dqn).choose(view())


def test_an_agent_that_may_not_learn_stays_as_it_is() -> None:
    dqn = fresh()
    before = [parameter.copy() for parameter in dqn.online.parameters]
    for _ in range(100):
        played(Learned(dqn), view(), TAKES_S)
    assert dqn.steps == 0
    assert all(map(np.array_equal, before, dqn.online.parameters))


def test_a_reward_has_named_parts_that_add_up_to_the_speed_up() -> None:
    weights = RewriteWeights(traffic=0.1, measuring=0.01)
    start = view()
    worse = measured(start, tiles=2e-3)
    better = measured(worse, onnxruntime=5e-4)
    lessons = (("tiles", start, worse), ("onnxruntime", worse, better))
    steps = [rewrite_reward(weights, view=b, entry=e, after=a) for e, b, a in lessons]
    steps.append(rewrite_reward(weights, view=better, entry="onnxruntime", after=better))
    assert list(steps[0].parts()) == ["time", "traffic", "measuring"]
    assert steps[0].time == steps[0].traffic == 0
    assert steps[1].traffic == pytest.approx(0.1 * 0.6), "it moves each byte once"
    assert steps[2] == RewriteReward(time=0.0, traffic=0.0, measuring=0.0)
    assert sum(step.time for step in steps) == pytest.approx(log(2))
    assert sum(step.measuring for step in steps) == pytest.approx(-0.02)
    slower = rewrite_reward(weights, view=better, entry="tiles", after=better)
    assert slower.time == pytest.approx(log(5e-4 / 2e-3))


def test_what_is_slow_to_build_costs_more_to_measure() -> None:
    costs = {}
    for name in ("onnxruntime", "fusion"):
        after = measured(view(), **{name: 2e-3})
        earned = rewrite_reward(RewriteWeights(), view=view(), entry=name, after=after)
        costs[name] = -earned.measuring
    assert costs["fusion"] > 5 * costs["onnxruntime"] > 0


def test_op_by_op_all_is_moved() -> None:
    joined = {entry.name for entry in LIBRARY if moved_share(view(), entry.name) < 1}
    assert {"eager", "channels last", "prefetch"} == ALL - joined
    assert moved_share(view(), "mine") == 1


def test_the_agent_learns_while_it_serves_and_what_it_learned_is_kept(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    shipped = tmp_path / "agent.safetensors"
    monkeypatch.setattr("gearshift.decide.rewrite.agent.SHIPPED", shipped)
    with pytest.raises(CheckpointError, match="no such file"):
        Agent(tmp_path, "here")
    ROLE.write(shipped, fresh(), {"seed": 0})
    agent = Agent(tmp_path, "here")
    player = Learned(agent.dqn, learning=True)
    while agent.dqn.steps < 150:
        played(player, view(), TAKES_S)
    agent.keep()
    kept = Agent(tmp_path, "here").dqn
    assert kept.steps >= 150
    pairs = zip(kept.online.parameters, fresh().online.parameters, strict=True)
    assert any(not np.array_equal(mine, theirs) for mine, theirs in pairs)
