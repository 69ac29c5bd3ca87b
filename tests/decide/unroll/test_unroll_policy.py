"""A player that chooses settings of recurrent layers while a model serves."""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import pytest

from gearshift.decide.bandit import Bandit
from gearshift.decide.policy import Compared, How, Options, Outcome, Proposal
from gearshift.decide.unroll.actions import STAY, mask, number_of
from gearshift.decide.unroll.policy import Subject, UnrollPolicy
from gearshift.decide.unroll.view import RAGGED, STREAMING, UNIFORM, UnrollView
from gearshift.ir.measurement import Metric, Source
from gearshift.ir.recurrent import Stack
from gearshift.ir.snapshot import LayerSeen, Sample, Situation, Snapshot, from_data, to_data
from gearshift.plan import Plan, Region
from gearshift.plan.unroll import AT_ONCE, Steps, alike
from gearshift.predict.table import Table
from tests.decide.unroll.views import stack

HERE = Situation(signature="x", neighbours=0)
BY_16 = Steps(then=16)
TEAM = "cpu:0+cpu:1"
READINGS = {
    "thread.cpu:1.run_delay_share": Metric(value=0.4, source=Source.MEASURED),
    "process.run_delay_share": Metric(value=0.1, source=Source.MEASURED),
    "cache.l2_hit_share": Metric(value=0.7, source=Source.MODELLED),
}


@dataclass
class Wishing:
    """Chooses what it is told to, and remembers what it saw and learned."""

    wish: int = STAY
    name: str = "wishing"
    start: Steps | None = None
    seen: list[UnrollView] = field(default_factory=list)
    learned: list[tuple[int, float]] = field(default_factory=list)

    def choose(self, view: UnrollView) -> int:
        self.seen.append(view)
        return self.wish if mask(view)[self.wish] else STAY

    def learn(self, view: UnrollView, action: int, reward: float, after: UnrollView) -> None:
        self.learned.append((action, reward))


def plan(*layers: Steps, engine: str = TEAM) -> Plan:
    unroll = replace(alike(len(layers), AT_ONCE), layers=tuple(layers))
    return Plan(regions=(Region(ops=("lstm",), engine=engine, unroll=unroll),))


START = plan(AT_ONCE, AT_ONCE)
BETTER = plan(AT_ONCE, BY_16)
ALONE = plan(AT_ONCE, AT_ONCE, engine="cpu:0")


def layers(num: int = 2, most_steps: int = 100) -> tuple[LayerSeen, ...]:
    return tuple(
        LayerSeen(
            region="lstm",
            layer=layer,
            busy_s=0.02 * (layer + 1),
            num_steps=10 * most_steps,
            row_steps=80 * most_steps,
            num_walks=10,
            most_steps=most_steps,
            most_rows=8,
        )
        for layer in range(num)
    )


def snapshot(
    in_force: Plan, took_s: float = 0.01, seen: Sequence[LayerSeen] = layers(), at_s: float = 0.0
) -> Snapshot:
    sample = Sample(plan=in_force.fingerprint, situation=HERE, seconds=(took_s,) * 10)
    return Snapshot(
        at_s=at_s,
        plan=in_force.fingerprint,
        trial=None,
        situation=HERE,
        samples=(sample,),
        num_calls=10,
        layers=tuple(seen),
        readings=READINGS,
        may_build=False,
    )


class Serving:
    """A policy, and what it is asked with."""

    def __init__(
        self, player: Wishing, shape: Stack | None = None, memory_limit: int | None = None
    ) -> None:
        table = Table(2)
        bandit = Bandit(table, lambda situation, plan, seconds: seconds)
        stacks = {"lstm": shape or stack(2)}
        subject = Subject(stacks=stacks, num_cores=2, memory_limit=memory_limit)
        self.table, self.policy = table, UnrollPolicy(bandit, player, subject, table)
        plans = (START, ALONE, BETTER)
        self.options = Options(plans={p.fingerprint: p for p in plans}, num_cores=2)

    def see(self, seen: Snapshot) -> Proposal | None:
        for sample in seen.samples:
            self.table.add(sample)
        return self.policy.propose(from_data(to_data(seen)), self.options)


@pytest.mark.capability("rnn.monitor")
@pytest.mark.capability("rnn.ppo")
def test_each_layer_is_seen_with_its_time_memory_load_and_cache() -> None:
    player = Wishing()
    serving = Serving(player)
    serving.see(snapshot(START))
    (view,) = player.seen
    first, second = view.layers
    assert (view.num_rows, view.num_steps, view.inputs) == (8, 100, UNIFORM)
    assert view.num_engines == 2
    assert view.filled_share == 1.0
    assert first.step_s.value == pytest.approx(0.02 / 1000)
    assert second.step_s.value == pytest.approx(0.04 / 1000)
    assert second.engine == 1
    assert second.busy_share.value == pytest.approx(0.4)
    assert second.run_delay_share == READINGS["thread.cpu:1.run_delay_share"], "its own thread's"
    assert first.run_delay_share == READINGS["process.run_delay_share"], "it has none of its own"
    assert first.held_bytes.source is Source.MODELLED
    assert first.hit_share.value == 0.7


def test_the_kind_of_input_is_told() -> None:
    for shape, steps, kind in (
        (stack(2, ragged=True), 100, RAGGED),
        (stack(2), 4, STREAMING),
        (stack(2), 100, UNIFORM),
    ):
        player = Wishing()
        Serving(player, shape).see(snapshot(START, seen=layers(2, steps)))
        assert player.seen[0].inputs == kind


@pytest.mark.capability("rnn.ppo")
def test_one_layer_is_changed_and_what_came_of_it_is_learned() -> None:
    player = Wishing(number_of(1, BY_16))
    serving = Serving(player)
    proposal = serving.see(snapshot(START))
    assert proposal is not None
    assert proposal.plan == BETTER
    assert proposal.how is How.TRY, "it was never measured"
    assert "layer 1" in proposal.reason
    serving.see(snapshot(BETTER, took_s=0.005))
    ((action, reward),) = player.learned
    assert action == number_of(1, BY_16)
    assert reward > 0, "half the time of before"


def test_what_lost_its_trial_is_learned_from_and_rests() -> None:
    player = Wishing(number_of(1, BY_16))
    serving = Serving(player)
    proposal = serving.see(snapshot(START))
    assert proposal is not None
    lost = Outcome(
        plan=proposal.plan.fingerprint,
        how=How.TRY,
        kept=False,
        why="slower",
        situation=HERE,
        compared=Compared(other=START.fingerprint, times_as_fast=0.5, calls=10),
    )
    serving.policy.learn(lost)
    ((action, reward),) = player.learned
    assert action == number_of(1, BY_16)
    assert reward < 0, "it took twice as long"
    assert serving.see(snapshot(START, at_s=1.0)) is None, "for a while"


def test_a_layer_keeps_its_setting_for_some_calls() -> None:
    player = Wishing(number_of(1, AT_ONCE))
    serving = Serving(player)
    serving.see(snapshot(START))
    serving.see(replace(snapshot(BETTER), num_calls=1))
    assert not mask(player.seen[-1])[number_of(1, AT_ONCE)], "it has just changed"
    serving.see(snapshot(BETTER))
    assert mask(player.seen[-1])[number_of(1, AT_ONCE)]


@pytest.mark.capability("rnn.constraints")
def test_what_would_exceed_the_memory_limit_is_masked() -> None:
    """A long sequence: all of it at once does not fit, sixteen steps at a time do."""
    player = Wishing()
    by_16 = plan(BY_16, BY_16)
    serving = Serving(player, memory_limit=500_000)
    serving.options.plans = {**serving.options.plans, by_16.fingerprint: by_16}
    serving.see(snapshot(by_16, seen=layers(2, 1000)))
    legal = mask(player.seen[-1])
    assert not legal[number_of(0, AT_ONCE)]
    assert legal[number_of(0, Steps(then=8))]


def test_what_the_layers_hold_themselves_is_not_held_against_them() -> None:
    """Held are 800 kB, most of it by these layers: a little more fits below the limit."""
    player, by_16 = Wishing(), plan(BY_16, BY_16)
    serving = Serving(player, memory_limit=900_000)
    serving.options.plans = {**serving.options.plans, by_16.fingerprint: by_16}
    seen = snapshot(by_16, seen=layers(2, 1000))
    serving.see(seen)
    own_bytes = player.seen[-1].footprint.held_bytes((BY_16, BY_16))
    serving.see(replace(seen, at_s=1.0, held_bytes=own_bytes + 100_000))
    assert player.seen[-1].memory_limit_bytes == 800_000
    assert mask(player.seen[-1])[number_of(0, Steps(then=32))]
    serving.see(replace(seen, at_s=2.0, held_bytes=own_bytes + 2_000_000))
    assert player.seen[-1].memory_limit_bytes == 1, "nothing is left, which is no division by zero"


def test_what_the_bandit_knows_to_be_better_comes_first() -> None:
    player = Wishing(number_of(1, BY_16))
    serving = Serving(player)
    faster = Sample(plan=ALONE.fingerprint, situation=HERE, seconds=(0.001,) * 20)
    serving.table.add(faster)
    proposal = serving.see(snapshot(START))
    assert proposal is not None
    assert proposal.plan == ALONE
    assert proposal.how is How.ADOPT


def test_where_nothing_is_unrolled_or_seen_the_bandit_decides() -> None:
    player = Wishing(number_of(1, BY_16))
    assert Serving(player).see(snapshot(START, seen=())) is None
    assert not player.seen
