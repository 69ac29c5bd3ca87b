"""The loop in a world of numbers: trials, returns, what it tells and what it keeps."""

import threading
from collections.abc import Sequence
from dataclasses import replace

import pytest
from decide.world import (
    CORES,
    EAGER,
    KEY,
    ONE,
    PLANS,
    TIMES,
    TWO,
    Always,
    Asking,
    World,
    learned,
    loop,
    mind,
)

from gearshift import loop as loop_module
from gearshift.decide import guard
from gearshift.decide.control import InProcess
from gearshift.decide.guard import Limits
from gearshift.decide.messages import Answer
from gearshift.decide.policy import MAX_REFUSALS, How, Options, Outcome, Proposal
from gearshift.decide.reward import Costs
from gearshift.errors import UsageError
from gearshift.hands import Done, Refusal
from gearshift.ir.snapshot import Sample, Situation, Snapshot
from gearshift.loop import SETTLED_STEPS, step_every
from gearshift.observe.store import memory_store
from gearshift.plan import Objective, Plan, Region, Rewrite


def test_what_served_a_situation_serves_it_again_without_being_asked_for() -> None:
    world = World()
    running = loop(world)
    world.live_among(running, 0, 1, seconds=60)
    running.control = Asking(Always(None))
    for neighbours, best in ((0, TWO), (1, ONE)):
        world.neighbours = neighbours
        start_s = world.now_s
        world.live(running, 1.0)
        assert world.plan == best
        assert world.switches[-1][0] - start_s < 0.4


def test_who_acts_is_told_which_core_neighbours_leave_alone() -> None:
    """They are on the first ones."""
    world = World()
    running = loop(world)
    told = []
    for world.neighbours in (0, 1, 0):
        world.live(running, 2.0)
        told.append(world.crowd)
    assert told == [(0, None), (1, 1), (0, None)]


def test_a_trial_ends_when_the_situation_changes() -> None:
    world = World()
    running = loop(world)
    while running.changeover.trial is None:
        world.live(running, 0.1)
    world.neighbours = 1
    world.live(running, 0.8)
    assert running.changeover.trial is None or running.changeover.trial.situation.neighbours == 1  # type: ignore[union-attr]


def test_what_a_change_brought_is_measured() -> None:
    world = World()
    running = loop(world)
    world.live_among(running, 0, 1, 0, 1, seconds=60)
    gains = [gain for plan, gain in world.gains if plan == ONE.fingerprint]
    assert gains
    assert all(1.4 < gain < 2.0 for gain in gains), "0.060 against 0.036"


def test_calls_beside_our_own_work_teach_nothing() -> None:
    world = World()
    running = loop(world)
    world.disturbed = True
    world.live(running, 5)
    assert not running.guard.model.rows
    assert running.guard.served_s > 4, "but they are served"


def test_what_was_refused_too_often_is_masked_but_keeps_its_place() -> None:
    options = Options(plans=PLANS, num_cores=2)
    refusal = Outcome(plan=TWO.fingerprint, how=How.TRY, kept=False, why="refused: no memory")
    for _ in range(MAX_REFUSALS):
        assert options.mask == (True, True, True)
        options.heed(refusal)
    assert options.mask == (True, False, True)
    assert TWO not in options.allowed.values()
    assert list(options.plans) == list(PLANS)


def test_a_newcomer_that_lost_rests() -> None:
    """It looks as fast as the plan in force, but in turns it is not worth the change."""
    world = World({(EAGER, 0): 0.02, (TWO, 0): 0.0198, (ONE, 0): 0.06})
    world.live(loop(world), 100)
    assert 1 <= world.tried.count(TWO) <= 3, "now and then, not all the time"


def test_regions_decisions_and_calibration_are_kept() -> None:
    store = memory_store()
    identities = {f: {plan.regions[0].name: "r"} for f, plan in PLANS.items()}
    control = InProcess(mind(store, identities=identities))
    world = World()
    running = loop(world, control)
    world.live_among(running, 0, 1, 0, seconds=30)
    control.mind.save()
    rows = store.regions(machine=KEY["machine"], versions=KEY["versions"])
    kept = {(row.key.rewrite, row.key.context): row.latency.mean_s for row in rows}
    assert kept["onnxruntime x2", "neighbours 0"] < kept["eager", "neighbours 0"]
    made = store.decisions(machine=KEY["machine"], graph=KEY["graph"])
    assert any(row.decision.measured_gain and row.decision.measured_gain > 1.5 for row in made)
    assert any("may be better" in row.decision.reason for row in made)
    again = mind(store)
    assert again.table.calibration.ratios == control.mind.table.calibration.ratios != {}


def test_before_the_first_call_the_best_known_plan_is_made_ready() -> None:
    store = learned(0, seconds=30)
    idle = Snapshot(
        at_s=1.0, plan=EAGER.fingerprint, trial=None, situation=None, ready=(EAGER.fingerprint,)
    )
    proposal = mind(store).see(idle).proposal
    assert proposal is not None
    assert (proposal.how, proposal.plan) == (How.STAND_BY, TWO)


def test_what_is_known_from_earlier_starts_serves_or_stands_by_before_the_first_call() -> None:
    store = learned(0, 1, seconds=30)
    again = World()
    again.ready = [EAGER.fingerprint]
    loop(again, InProcess(mind(store))).recall()
    assert again.plan == TWO
    assert ONE.fingerprint in again.ready
    assert not again.tried


class Slow(World):
    """What is adopted is ready a while later."""

    def adopt(self, proposal: Proposal, done: Done) -> None:
        super_adopt = super().adopt
        threading.Timer(0.3, lambda: super_adopt(proposal, done)).start()


def test_a_plan_that_is_to_serve_is_waited_for_longer_than_those_that_stand_by(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A slow model is slow to verify its plans, too, and slower than any of them."""
    monkeypatch.setattr(loop_module, "RECALL_S", 0.1)
    again = Slow()
    again.ready = [EAGER.fingerprint]
    loop(again, InProcess(mind(learned(0, 1, seconds=30)))).recall()
    assert again.plan == TWO
    assert ONE.fingerprint not in again.ready, "the time for others was over"


def test_before_the_first_call_what_is_known_to_be_better_by_a_little_serves_too() -> None:
    """There are no calls on which the two could take turns."""
    times = {**TIMES, (TWO, 0): 0.037}
    again = World(times)
    again.ready = [EAGER.fingerprint]
    loop(again, InProcess(mind(learned(0, seconds=60, times=times)))).recall()
    assert again.plan == TWO
    assert not again.tried


def test_what_only_an_earlier_start_knows_serves_as_soon_as_the_situation_is_seen() -> None:
    again = World()
    again.ready = [EAGER.fingerprint]
    running = loop(again, InProcess(mind(learned(0, 1, seconds=60))))
    running.recall()
    running.control = Asking(Always(None))
    again.live(running, 2.0)
    again.neighbours, start_s = 1, again.now_s
    again.live(running, 1.0)
    assert again.plan == ONE
    assert again.switches[-1][0] - start_s < 0.4


def test_where_much_is_known_few_plans_are_built(monkeypatch: pytest.MonkeyPatch) -> None:
    world = World()
    running = loop(world)
    world.live(running, 60)
    assert running.seen is not None
    running.guard.built(10.0)
    trial = Proposal(plan=ONE, how=How.TRY, reason="?")
    ready, seen = running.seen, replace(running.seen, ready=())
    monkeypatch.setattr(guard, "BUILD_HEAD_S", 0.0)
    refusal = running.guard.review(trial, seen, world.why_illegal)
    assert refusal is not None
    assert "built for long enough" in refusal
    assert running.guard.review(trial, ready, world.why_illegal) is None, "nothing to build"


def test_what_is_foreseen_to_be_better_may_be_built() -> None:
    """Once all plans that promise something are measured, builds have their share of the time."""
    running = loop(World())
    situation = Situation(signature="x", neighbours=0)
    running.guard.built(1.0)
    for plan, mean_s in ((EAGER, 0.04), (TWO, 0.02)):
        assert running.guard.may_build(situation), "more may be found"
        sample = Sample(plan=plan.fingerprint, situation=situation, seconds=(mean_s,) * 9)
        running.guard.model.add(sample)
    assert not running.guard.may_build(situation), "one thread will not beat two"


def test_what_an_earlier_start_looked_into_is_not_built_for_again_at_once() -> None:
    """However promising; it may be once there is time for it."""
    running = loop(World())
    known, new = (Situation(signature="x", neighbours=n) for n in (0, 1))
    sample = Sample(plan=EAGER.fingerprint, situation=known, seconds=(0.04,) * 9)
    running.guard.recall(sample)
    running.guard.built(1.0)
    assert not running.guard.may_build(known)
    assert running.guard.may_build(new)
    running.guard.served_s = 60.0
    assert running.guard.may_build(known)


@pytest.mark.parametrize("lasting", [True, False])
def test_what_cannot_be_made_ready_is_not_asked_for_all_the_time(lasting: bool) -> None:
    """Known from an earlier start to be best, but now there is no room for it, or it is wrong."""
    store = learned(0, seconds=30)
    again = World()
    again.ready = [EAGER.fingerprint]
    again.refuses = {TWO: Refusal("no room", lasting=lasting)}
    running = loop(again, InProcess(mind(store)))
    running.recall()
    again.live(running, 60)
    assert again.plan != TWO
    assert 1 <= [plan for _, plan in again.asked].count(TWO) <= 10, "in a minute"
    assert running.guard.model.rows, "and calls teach all the while"


def test_a_trial_whose_newcomer_cannot_be_timed_ends() -> None:
    """As when its calls go to the model itself: its weights changed, or its sizes are refused."""
    world = World()
    world.mute = {TWO}
    world.live(loop(world), 60)
    assert TWO in world.tried
    assert ONE in world.tried, "others get their turn"


def test_a_newcomer_that_breaks_the_limit_does_not_serve_though_it_is_faster() -> None:
    """Nine calls in ten are fast; what the verdict leaves out is what the limit is about."""
    world = World({(EAGER, 0): 0.03, (TWO, 0): 0.02, (ONE, 0): 0.05})
    running = loop(world, limits=Limits(slo_s=0.04, explore_share=1.0))
    while running.changeover.trial is None:
        world.live(running, 0.1)
    assert world.newcomer == TWO
    running.guard._newcomer_s.extend([0.05] * 100)
    world.live(running, 1.0)
    assert world.plan == EAGER


def test_energy_is_booked_to_the_plan_that_used_it() -> None:
    """In a trial a snapshot may hold calls of the newcomer alone."""
    costs = Costs(Objective(latency=0.5, energy=0.5), CORES)
    situation = Situation(signature="x", neighbours=0)
    for plan, energy_j in ((EAGER, 2.0), (TWO, 1.0)) * 5:
        sample = Sample(plan=plan.fingerprint, situation=situation, seconds=(0.02,))
        snapshot = Snapshot(
            at_s=0.0,
            plan=EAGER.fingerprint,
            trial=TWO.fingerprint,
            situation=situation,
            samples=(sample,),
            energy_j=energy_j,
        )
        costs.note(snapshot, PLANS)
    assert costs.energy_j(situation, EAGER.fingerprint) == 2.0
    assert costs.energy_j(situation, TWO.fingerprint) == 1.0


def test_where_nothing_may_be_built_what_stands_by_is_still_tried() -> None:
    situation = Situation(signature="x", neighbours=0)
    thinking = mind()
    for plan in (EAGER,):
        thinking.table.add(Sample(plan=plan.fingerprint, situation=situation, seconds=(0.02,) * 9))
    seen = Snapshot(
        at_s=1.0,
        plan=EAGER.fingerprint,
        trial=None,
        situation=situation,
        ready=(EAGER.fingerprint, ONE.fingerprint),
        may_build=False,
    )
    proposal = thinking.see(seen).proposal
    assert proposal is not None
    assert proposal.plan == ONE


def test_a_known_plan_comes_back_though_the_other_is_guessed_to_be_as_good() -> None:
    """Beside a neighbour ONE was measured; what serves now never was, and its guess is a guess."""
    world = World({**World().times, (TWO, 0): 0.025})
    running = loop(world)
    world.live_among(running, 0, 1, seconds=60)
    busy, quiet = (Situation(signature="x", neighbours=n) for n in (1, 0))
    assert world.plan == ONE
    del running.guard.model.rows[busy][TWO.fingerprint]
    running.control = Asking(Always(None))
    world.neighbours = 0
    world.live(running, 2)
    assert world.plan == TWO
    world.neighbours = 1
    world.live(running, 1)
    assert running.guard.model.measured(quiet, TWO.fingerprint) is not None
    assert world.plan == ONE


def test_what_served_a_situation_for_want_of_better_does_not_come_back() -> None:
    """The model itself, seen beside a neighbour for a moment before there were other plans."""
    world = World()
    running = loop(world)
    world.live(running, 20)
    assert world.plan == TWO
    busy = Situation(signature="x", neighbours=1)
    running.served_in[busy] = EAGER.fingerprint
    running.control = Asking(Always(None))
    world.neighbours = 1
    world.live(running, 1)
    assert world.plan == TWO


def test_what_served_a_situation_too_shortly_to_be_measured_does_not_come_back() -> None:
    """However good it is foreseen to be: that is for the policy to judge."""
    world = World(
        {(EAGER, 0): 0.02, (TWO, 0): 0.018, (ONE, 0): 0.02, (TWO, 1): 0.03, (ONE, 1): 0.9}
    )
    running = loop(world)
    world.live(running, 20)
    world.plan = TWO
    running.served_in[Situation(signature="x", neighbours=1)] = ONE.fingerprint
    running.control = Asking(Always(None))
    world.neighbours = 1
    world.live(running, 1)
    assert world.plan == TWO


def test_other_sizes_are_another_situation() -> None:
    """A change of input is not taken for a neighbour: the plan stays, what is learned is apart."""
    world = World()
    running = loop(world)
    world.live(running, 20)
    assert world.plan == TWO
    world.signatures = ["y"]
    world.live(running, 3)
    assert running.seen is not None
    assert running.seen.situation == Situation(signature="y", neighbours=0)
    quiet = Situation(signature="x", neighbours=0)
    assert running.guard.model.rows[quiet] is not running.guard.model.rows[running.seen.situation]
    assert world.plan == TWO


def test_sizes_that_mix_are_one_situation() -> None:
    """Two batch sizes in turns: the loop finds its plan all the same."""
    world = World()
    world.signatures = ["x", "y"]
    world.live(loop(world), 30)
    assert world.plan == TWO


def test_a_user_s_own_plan_can_be_in_force() -> None:
    mine = Plan(regions=(Region(ops=("a",), rewrite=Rewrite(backend="eager", threads=1)),))
    world = World({**World().times, (mine, 0): 0.05})
    world.plan = mine
    running = loop(world)
    world.live(running, 30)
    assert world.plan == TWO


def test_what_a_trial_costs_is_not_what_the_policy_says() -> None:
    """However slow the plan in force is said to be, the newcomer is measured against its own."""
    boast = Proposal(plan=ONE, how=How.TRY, reason="?", predicted_s=0.01, current_s=1e9)
    world = World({(EAGER, 0): 0.02, (TWO, 0): 0.02, (ONE, 0): 0.2})
    running = loop(world, Asking(Always(boast)))
    world.live(running, 60)
    lost_s = sum(t - 0.02 for _, plan, t in world.calls if plan == ONE)
    assert lost_s <= 0.02 * sum(t for _, _, t in world.calls) + 0.25


@pytest.mark.capability("core.never-slower")
def test_a_slow_plan_is_rolled_back_whatever_is_proposed() -> None:
    world = World()
    running = loop(world)
    world.live(running, 30)
    assert world.plan == TWO
    always = Proposal(plan=EAGER, how=How.TRY, reason="?", predicted_s=0.001, current_s=0.04)
    running.control = Asking(Always(always))
    world.plan = EAGER
    world.live(running, 10)
    assert world.plan == TWO


def test_a_plan_known_to_be_slower_does_not_come_back_with_its_situation() -> None:
    world = World()
    running = loop(world)
    world.live_among(running, 0, 1, seconds=60)
    quiet = Situation(signature="x", neighbours=0)
    running.served_in[quiet] = EAGER.fingerprint
    world.plan = TWO
    running.control = Asking(Always(None))
    world.neighbours = 0
    world.live(running, 2)
    assert world.plan == TWO


@pytest.mark.parametrize("wrong", [{"switches_per_minute": 0}, {"explore_share": 2}, {"slower": 1}])
def test_limits_that_make_no_sense_are_refused(wrong: dict[str, float]) -> None:
    with pytest.raises(UsageError, match=next(iter(wrong))):
        Limits(**wrong)  # type: ignore[arg-type]


def test_a_breach_of_what_calls_may_take_stops_a_trial_at_once() -> None:
    world = World({(EAGER, 0): 0.02, (TWO, 0): 0.05, (ONE, 0): 0.05})
    running = loop(world, limits=Limits(slo_s=0.04, explore_share=1.0))
    world.live(running, 20)
    assert world.tried
    assert world.plan == EAGER
    late = [t for at_s, _, t in world.calls if t > 0.04 and at_s > 1000 + 10]
    assert not late, "and nothing is tried for a while"


def test_a_limit_that_is_missed_anyway_does_not_keep_a_better_plan_away() -> None:
    world = World({(EAGER, 0): 0.04, (TWO, 0): 0.02, (ONE, 0): 0.035})
    running = loop(world, limits=Limits(slo_s=0.03))
    world.live(running, 20)
    assert world.plan == TWO
    strict = World({(EAGER, 0): 0.04, (TWO, 0): 0.02, (ONE, 0): 0.035})
    strict.live(loop(strict, limits=Limits(slo_s=0.01)), 20)
    assert strict.plan == TWO, "nobody keeps to it, so the fastest serves"


def test_hundreds_of_sizes_are_adapted_to() -> None:
    world = World()
    world.signatures = [f"float32[1, {length}]" for length in range(100, 356)]
    world.live(loop(world), 60)
    assert world.plan == TWO


def test_what_may_not_happen_now_is_told() -> None:
    world = World()
    tried = Proposal(plan=ONE, how=How.TRY, reason="?", predicted_s=0.001, current_s=0.02)
    running = loop(world, Asking(Always(tried)), Limits(explore_share=0.0))
    world.live(running, 3)
    assert "the exploration budget is spent" in running.put_off
    assert ONE.summary in running.put_off


def test_with_energy_a_verdict_tells_time_and_cost_apart() -> None:
    """Slower, but cheaper."""
    world = World({(EAGER, 0): 0.04, (TWO, 0): 0.020, (ONE, 0): 0.025})
    saving = Objective(latency=0.1, energy=0.9)
    running = loop(world, objective=saving)
    told: list[Outcome] = []
    ask = running.control.ask

    def listening(snapshot: Snapshot, outcomes: Sequence[Outcome]) -> Answer | None:
        told.extend(outcomes)
        return ask(snapshot, outcomes)

    running.control.ask = listening  # type: ignore[method-assign]
    world.live(running, 60)
    assert world.plan == ONE
    texts = [o.why for o in told if o.plan == ONE.fingerprint and "by the objective" in o.why]
    assert any("less by the objective" in text for text in texts), [o.why for o in told]


def test_a_loop_in_which_nothing_happens_steps_less_often() -> None:
    assert [step_every(steps) for steps in (0, SETTLED_STEPS - 1, SETTLED_STEPS)] == [2, 2, 5]
