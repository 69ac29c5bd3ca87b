"""Those who choose a split while a model serves: what they see, what they earn, how they learn."""

import logging
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np
import pytest
from decide.world import KEY

from gearshift.decide.check import check_policy
from gearshift.decide.learn.dqn import Dqn
from gearshift.decide.messages import Hello, read_answer, read_hello, write_answer, write_hello
from gearshift.decide.mind import Mind
from gearshift.decide.policy import How, Options, Proposal
from gearshift.decide.split.account import Account
from gearshift.decide.split.actions import ACTIONS, NAMES
from gearshift.decide.split.agent import ROLE, Agent
from gearshift.decide.split.players import Greedy, Learned, Player, Share, Unteachable
from gearshift.decide.split.policy import SplitPolicy
from gearshift.decide.split.profiling import Experience, seen
from gearshift.decide.split.reward import split_reward
from gearshift.decide.split.sight import Subject, engines_of
from gearshift.decide.split.view import ENGINE_INPUTS, FAR, INPUTS, SplitView, features
from gearshift.errors import CheckpointError
from gearshift.ir.measurement import Metric, Source
from gearshift.ir.snapshot import Sample, Situation, Snapshot
from gearshift.ir.topology import CALLER
from gearshift.observe.store import memory_store
from gearshift.plan import Objective, Plan, Region, Rewrite
from gearshift.plan.objective import SplitWeights
from gearshift.predict.estimate import Estimate
from gearshift.predict.table import Table

SUBJECT = Subject(
    engines=("cpu:0", "cpu:1"),
    kind="conv",
    dims=(8, 64, 56, 56),
    num_rows=8,
    flops=1e9,
    moved_bytes=1e7,
    item_bytes=4,
    read_bytes=6e5,
    made_bytes=4e5,
)
QUIET = Situation(signature="x", neighbours=0)


def plan_for(action: int, backend: str = "onnxruntime") -> Plan:
    chosen = ACTIONS[action]
    alone = Rewrite(backend=backend, threads=1)
    if chosen.split is not None:
        region = Region(ops=("op",), engine="cpu:0+cpu:1", rewrite=alone, split=chosen.split)
    elif chosen.member is None:
        region = Region(ops=("op",), engine=CALLER, rewrite=replace(alone, threads=2))
    else:
        region = Region(ops=("op",), engine=f"cpu:{chosen.member}", rewrite=alone)
    return Plan(regions=(region,))


ALONE = Sample(plan=plan_for(0).fingerprint, situation=QUIET, seconds=(0.1,) * 20)
"""What one engine takes."""


def rows_only(backend: str = "onnxruntime") -> dict[str, Plan]:
    legal = [i for i, a in enumerate(ACTIONS) if a.split is None or a.split.how == "rows"]
    plans = [plan_for(index, backend) for index in legal]
    return {plan.fingerprint: plan for plan in plans}


def snapshot(plan: Plan, *, others: tuple[float, float], seconds: float, at_s: float) -> Snapshot:
    """Both engines at work, the second one as slow as others make it."""
    share = 1 / (2 - others[1])
    done = {"cpu:0": (share, seconds), "cpu:1": (1 - share, seconds)}
    sample = Sample(
        plan=plan.fingerprint,
        situation=QUIET,
        seconds=(seconds,) * 10,
        parts={"op": done} if plan.regions[0].split is not None else {},
    )
    readings = {f"core.{i}.others_share": measured(value) for i, value in enumerate(others)}
    readings["cache.l3_hit_share"] = measured(0.7)
    readings["memory.dram_bytes_s"] = measured(5e9)
    return Snapshot(
        at_s=at_s,
        plan=plan.fingerprint,
        trial=None,
        situation=QUIET,
        samples=(sample,),
        ready=(plan.fingerprint,),
        readings=readings,
    )


def measured(value: float) -> Metric:
    return Metric(value=value, source=Source.MEASURED)


def control(policy: str, *, subject: Subject | None = SUBJECT, home: Path | None = None) -> Mind:
    """A control plane that may divide by rows, and knows what one engine takes."""
    made = Mind(
        policy=policy,
        plans=rows_only(),
        num_cores=2,
        objective=Objective(),
        store=memory_store(),
        key=KEY,
        subject=subject,
        home=home,
    )
    made.table.add(ALONE)
    return made


def account() -> Account:
    table = Table(2)
    table.add(ALONE)
    return Account(model=table, subject=SUBJECT, weights=SplitWeights())


@pytest.mark.parametrize("action", range(len(ACTIONS)), ids=NAMES)
def test_an_action_is_a_plan_and_a_plan_an_action(action: int) -> None:
    assert SUBJECT.action_of(plan_for(action)) == action


def test_other_plans_are_no_actions() -> None:
    region = plan_for(0).regions[0]
    eager = Plan(regions=(Region(ops=("op",)),))
    two = Plan(regions=(region, replace(region, ops=("other",))))
    elsewhere = Plan(regions=(replace(region, engine="cpu:5"),))
    assert [SUBJECT.action_of(plan) for plan in (eager, two, elsewhere)] == [None] * 3


@pytest.mark.capability("split.state")
@pytest.mark.capability("split.profile-stage")
def test_all_that_the_choice_depends_on_is_in_the_view() -> None:
    plans = rows_only()
    rows = plan_for(NAMES.index("rows"))
    legal = SUBJECT.choices(plans)["onnxruntime"]
    now = snapshot(rows, others=(0.0, 0.5), seconds=0.05, at_s=1.0)
    view = seen(
        SUBJECT,
        engines_of(now, SUBJECT, 1e10),
        in_force=NAMES.index("rows"),
        legal=legal,
        alone_s=0.1,
        experience=Experience(),
    )
    first, second = view.engines
    assert (first.others_share, second.others_share) == (0.0, 0.5)
    assert first.dram_share == 0.5
    assert first.l3_hit_share == 0.7
    assert first.pace == 1.0
    assert second.pace == pytest.approx(0.5)
    assert (view.kind, view.num_rows, view.item_bytes) == ("conv", 8, 4)
    assert view.in_force == "rows"
    assert set(view.estimates_s) == {NAMES[action] for action in legal}, "before any is chosen"
    assert view.speeds == pytest.approx((1.0, 0.5))
    assert view.estimates_s["rows 2:1"] == pytest.approx(1.1 * 0.075), "six rows and two"
    assert view.estimates_s["rows"] == pytest.approx(1.1 * 0.075)
    assert view.estimates_s["none 1"] == pytest.approx(0.2)
    numbers = features(view)
    assert numbers.shape == (len(INPUTS),)
    assert np.isfinite(numbers).all()


def some_view() -> SplitView:
    now = snapshot(plan_for(NAMES.index("rows")), others=(0.0, 0.5), seconds=0.05, at_s=1.0)
    return seen(
        SUBJECT,
        engines_of(now, SUBJECT, 1e10),
        in_force=NAMES.index("rows"),
        legal=SUBJECT.choices(rows_only())["onnxruntime"],
        alone_s=0.1,
        experience=Experience(),
    )


def with_engine(view: SplitView, member: int, **changes: float) -> SplitView:
    engines = list(view.engines)
    engines[member] = replace(engines[member], **changes)
    return replace(view, engines=tuple(engines))


SEEN: dict[str, tuple[Callable[[SplitView], SplitView], set[str]]] = {
    **{
        f"engine {member} {name}": (
            partial(with_engine, member=member, **{name: 0.123}),
            {f"engine {member} {name}"},
        )
        for member in (0, 1)
        for name in ENGINE_INPUTS
    },
    "kind": (partial(replace, kind="linear"), {"kind conv", "kind linear"}),
    "dims": (partial(replace, dims=(8, 64, 7, 56)), {"dim 2"}),
    "rows": (partial(replace, num_rows=4), {"rows"}),
    "arithmetic": (partial(replace, flops=2e9), {"flops"}),
    "traffic": (partial(replace, moved_bytes=2e7), {"moved_bytes"}),
    "data type": (partial(replace, item_bytes=8), {"item_bytes"}),
    "in force": (partial(replace, in_force="none 0"), {"in force rows", "in force none 0"}),
    "tried": (partial(replace, tried=frozenset({"rows 1:1"})), {"tried rows 1:1"}),
}


@pytest.mark.capability("split.state")
@pytest.mark.parametrize("what", SEEN)
def test_the_network_sees_each_of_it_as_a_number_of_its_own(what: str) -> None:
    change, inputs = SEEN[what]
    view = some_view()
    before, after = features(view), features(change(view))
    assert {name for name, a, b in zip(INPUTS, before, after, strict=True) if a != b} == inputs


@pytest.mark.capability("split.profile-stage")
def test_the_network_sees_every_estimate_and_what_is_illegal() -> None:
    view = some_view()
    numbers = dict(zip(INPUTS, features(view), strict=True))
    least_s = min(view.estimates_s.values())
    for name in NAMES:
        if name in view.estimates_s:
            times = 2 ** numbers[f"estimate {name}"]
            assert times == pytest.approx(view.estimates_s[name] / least_s, rel=1e-3)
        else:
            assert numbers[f"estimate {name}"] == FAR


@pytest.mark.capability("split.reward")
def test_what_is_wanted_changes_what_a_split_earns_while_it_serves() -> None:
    rows = plan_for(NAMES.index("rows"))
    now = snapshot(rows, others=(0.0, 0.5), seconds=0.05, at_s=1.0)
    (sample,) = now.samples

    def parts(weights: SplitWeights) -> dict[str, float]:
        reward = replace(account(), weights=weights).reward(sample, rows_only())
        assert reward is not None
        return reward.parts()

    usual = parts(SplitWeights())
    assert all(usual.values()), "each part tells something"
    for name in usual:
        twice = parts(SplitWeights(**{name: 2 * getattr(SplitWeights(), name)}))
        assert twice == pytest.approx({**usual, name: 2 * usual[name]})


@pytest.mark.capability("split.reward")
def test_a_reward_has_named_parts_and_weights_that_can_be_set() -> None:
    earned = split_reward(
        SplitWeights(),
        took_s=0.05,
        alone_s=0.1,
        busy_s=(0.04, 0.02),
        link_share=0.5,
        held_share=1.0,
    ).parts()
    assert list(earned) == ["time", "balance", "transfer", "memory"]
    assert earned["time"] > 0
    assert earned["balance"] == pytest.approx(0.025)
    assert earned["transfer"] == pytest.approx(-0.025)
    assert earned["memory"] == pytest.approx(-0.02)
    objective = Objective(split=SplitWeights(balance=1.0, memory=0.0))
    hello = Hello(
        policy="dqn", plans={}, num_cores=2, objective=objective, home="", subject=SUBJECT
    )
    heard = read_hello(write_hello(hello))
    assert heard.objective.split.balance == 1.0
    assert heard.subject == SUBJECT


def player(name: str) -> Player:
    return {
        "share": Share(),
        "greedy": Greedy(),
        "dqn": Learned(Dqn.fresh(len(INPUTS), len(NAMES), seed=0), learning=True),
    }[name]


class Knowing(Table):
    """Has an estimate for whatever it is asked."""

    def estimate(
        self, plan: Plan, situation: Situation, plans: Mapping[str, Plan]
    ) -> Estimate | None:
        return Estimate(mean_s=0.1, deviation_s=0.0, source=Source.MODELLED)


class Fed(SplitPolicy):
    """Its table learns what it sees, as it does from the control plane."""

    proposed = 0

    def propose(self, snapshot: Snapshot, options: Options) -> Proposal | None:
        for sample in snapshot.samples:
            self.account.model.add(sample)
        proposal = super().propose(snapshot, options)
        self.proposed += proposal is not None
        return proposal


@pytest.mark.parametrize("name", ["greedy", "dqn"])
def test_a_splitting_policy_does_its_duty(name: str) -> None:
    account = Account(model=Knowing(2), subject=SUBJECT, weights=SplitWeights())
    policy = Fed(player(name), account)
    check_policy(policy)
    assert policy.proposed, "else nothing was checked"


@pytest.mark.parametrize("name", ["share", "greedy"])
def test_an_engine_that_slows_down_gets_less_and_gets_it_back(name: str) -> None:
    plans = rows_only()
    policy = SplitPolicy(player(name), account())
    options = Options(plans=plans, num_cores=2)
    in_force = plan_for(NAMES.index("rows 1:1"))
    at_s = 0.0
    chosen = []
    for others in ((0.0, 0.0), (0.0, 0.5), (0.0, 0.0)):
        at_s += 1.0
        took_s = 0.1 if any(others) else 0.05
        seen = snapshot(in_force, others=others, seconds=took_s, at_s=at_s)
        proposal = policy.propose(seen, options)
        if proposal is not None:
            assert proposal.how in (How.TRY, How.ADOPT)
            in_force = proposal.plan
        chosen.append(str(in_force.regions[0].split))
    if name == "share":
        assert chosen == ["rows 1:1", "rows 2:1", "rows 1:1"]
    else:
        assert chosen[1] in ("rows", "rows 2:1"), "what was foreseen to be best"


@pytest.mark.capability("split.dqn")
def test_the_agent_learns_while_it_serves_and_what_it_learned_is_kept(tmp_path: Path) -> None:
    mind = control("dqn", home=tmp_path)
    assert mind.policy.name == "dqn"
    before = [weight.copy() for weight in read_shipped().online.parameters]
    in_force = plan_for(NAMES.index("rows"))
    answer = mind.see(snapshot(in_force, others=(0.0, 0.0), seconds=0.05, at_s=0.0))
    for step in range(1, 250):
        answer = mind.see(snapshot(in_force, others=(0.0, 0.0), seconds=0.05, at_s=0.2 * step))
    assert mind.policy.name == "dqn", "it did not fail"
    assert set(answer.reward) == {"time", "balance", "transfer", "memory"}
    mind.save()
    kept = ROLE.read(ROLE.own_file(tmp_path))
    assert kept.about["lessons"] >= 100
    after = kept.network.parameters
    assert any(not np.array_equal(a, b) for a, b in zip(before, after, strict=True))


def read_shipped() -> Dqn:
    return Agent(Path("/nowhere"), "here").dqn


def same(one: Dqn, other: Dqn) -> bool:
    return all(map(np.array_equal, one.online.parameters, other.online.parameters))


def test_E5_an_agent_that_cannot_be_used_is_named_and_the_shipped_one_decides(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = ROLE.own_file(tmp_path)
    ROLE.write(path, read_shipped(), {"machine": "another"})
    whole = path.read_bytes()
    with caplog.at_level(logging.ERROR, logger="gearshift"):
        other = Agent(tmp_path, "here")
    assert "split.safetensors learned on another machine" in caplog.text
    path.write_bytes(whole[:100])
    with caplog.at_level(logging.ERROR, logger="gearshift"):
        damaged = Agent(tmp_path, "here")
    assert "split.safetensors cannot be read" in caplog.text
    assert same(other.dqn, read_shipped())
    assert same(damaged.dqn, read_shipped())


def test_E5_a_refused_agent_is_set_aside_and_not_written_over(tmp_path: Path) -> None:
    path = ROLE.own_file(tmp_path)
    ROLE.write(path, read_shipped(), {"machine": "another"})
    refused = path.read_bytes()
    agent = Agent(tmp_path, "here")
    agent.dqn.steps = 1000
    agent.keep()
    assert ROLE.read(path).about["machine"] == "here"
    (aside,) = path.parent.glob("split.*.refused")
    assert aside.read_bytes() == refused
    assert Agent(tmp_path, "here").dqn.steps == 1000, "what is sound stays where it is"
    assert len(list(path.parent.iterdir())) == 2


def test_an_agent_trained_in_the_simulator_is_taken_as_the_start(tmp_path: Path) -> None:
    mine = Dqn.fresh(len(INPUTS), len(NAMES), seed=5)
    ROLE.write(ROLE.own_file(tmp_path), mine, {"machine": "simulated", "seed": 5})
    agent = Agent(tmp_path, "here")
    assert same(agent.dqn, mine)
    agent.dqn.steps = 1000
    agent.keep()
    assert ROLE.read(ROLE.own_file(tmp_path)).about == {"machine": "here", "lessons": 1000}


def test_E5_without_any_agent_the_bandit_decides(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr("gearshift.decide.split.agent.SHIPPED", tmp_path / "missing.safetensors")
    with pytest.raises(CheckpointError, match="no such file"):
        Agent(tmp_path, "here")
    made = control("dqn", home=tmp_path)
    assert made.policy.name == "bandit"
    in_force = plan_for(NAMES.index("rows"))
    answer = made.see(snapshot(in_force, others=(0.0, 0.0), seconds=0.05, at_s=0.0))
    assert read_answer(write_answer(answer)).policy == "bandit", "and that is told"


def test_G1_weights_that_are_no_numbers_are_caught_before_use(tmp_path: Path) -> None:
    mind = control("dqn", home=tmp_path)
    policy = mind.policy
    assert isinstance(policy, SplitPolicy)
    assert isinstance(policy.player, Learned)
    policy.player.dqn.online.weights[-1][:] = np.nan
    in_force = plan_for(NAMES.index("rows"))
    answer = mind.see(snapshot(in_force, others=(0.0, 0.0), seconds=0.05, at_s=0.0))
    assert answer.proposal is None
    assert mind.policy.name == answer.policy == "rules"
    policy.player.dqn.steps = 1000
    mind.save()
    assert not ROLE.own_file(tmp_path).exists(), "what is no number is not kept"


def test_where_nothing_can_be_divided_the_bandit_decides() -> None:
    made = control("share", subject=None)
    assert made.policy.name == "bandit"


class Stuck(Unteachable):
    """Always names the same action, legal or not."""

    name = "stuck"

    def __init__(self, action: int) -> None:
        self.action = action

    def choose(self, view: SplitView) -> int:
        return self.action


def test_a_split_that_is_not_legal_is_not_proposed() -> None:
    plans = rows_only()
    policy = SplitPolicy(Stuck(NAMES.index("spatial")), account())
    in_force = plan_for(NAMES.index("rows"))
    seen = snapshot(in_force, others=(0.0, 0.0), seconds=0.05, at_s=1.0)
    assert policy.propose(seen, Options(plans=plans, num_cores=2)) is None


class Heard(Stuck):
    """Remembers what it was taught: what was seen before, what that earned, what was seen then."""

    def __init__(self) -> None:
        super().__init__(NAMES.index("rows"))
        self.lessons: list[tuple[SplitView, float, SplitView]] = []

    def learn(self, view: SplitView, action: int, reward: float, after: SplitView) -> None:
        self.lessons.append((view, reward, after))


def test_what_another_backend_took_teaches_nothing() -> None:
    rows = NAMES.index("rows")
    plans = {**rows_only(), **rows_only("openvino")}
    heard = Heard()
    policy = SplitPolicy(heard, account())
    policy.account.model.add(replace(ALONE, plan=plan_for(0, "openvino").fingerprint))
    policy.account.model.add(replace(ALONE, plan=plan_for(rows).fingerprint, seconds=(0.05,) * 20))
    seen = snapshot(plan_for(rows), others=(0.0, 0.0), seconds=0.05, at_s=0.0)
    other = replace(seen.samples[0], plan=plan_for(rows, "openvino").fingerprint)
    options = Options(plans=plans, num_cores=2)
    for number in range(4):
        policy.propose(replace(seen, at_s=1.0 + number, samples=(*seen.samples, other)), options)
    assert len(heard.lessons) == 3, "one from each snapshot but the first"


def test_inputs_of_different_sizes_are_told_apart() -> None:
    """Large ones take ten times as long: on equal terms both earn the same."""
    rows, times_s = plan_for(NAMES.index("rows")), {"small": 0.05, "large": 0.5}
    table = Table(2)
    for signature, seconds in times_s.items():
        where = Situation(signature=signature, neighbours=0)
        table.add(replace(ALONE, situation=where, seconds=(2 * seconds,) * 20))
    player = Heard()
    policy = SplitPolicy(player, Account(model=table, subject=SUBJECT, weights=SplitWeights()))
    seen = snapshot(rows, others=(0.0, 0.0), seconds=0.05, at_s=0.0)
    samples = tuple(
        replace(
            seen.samples[0],
            situation=Situation(signature=signature, neighbours=0),
            seconds=(seconds,) * 10,
        )
        for signature, seconds in times_s.items()
    )
    options = Options(plans=rows_only(), num_cores=2)
    for number in range(20):
        where = samples[number % 2].situation
        policy.propose(replace(seen, at_s=1.0 + number, situation=where, samples=samples), options)
    assert len(player.lessons) == 18, "from the second view of each size on"
    for before, reward, after in player.lessons:
        assert before.alone_s == after.alone_s, "of the same size"
        assert reward == pytest.approx(player.lessons[0][1])
        assert after.estimates_s["rows"] == pytest.approx(after.alone_s / 2, rel=0.01)
