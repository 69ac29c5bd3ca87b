"""G: whatever a policy does, calls are answered and the loss is bounded."""

import ast
import math
import os
import signal
import sys
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from time import monotonic, perf_counter, sleep

import pytest
import torch
from decide.world import CORES, EAGER, KEY, ONE, PLANS, TWO, Always, Asking, World, loop, mind

import gearshift
from faults.models import mlp
from gearshift.decide.control import ChildProcess, InProcess
from gearshift.decide.guard import Limits
from gearshift.decide.messages import Hello
from gearshift.decide.policy import How, Options, Outcome, Policy, Proposal
from gearshift.ir.snapshot import Sample, Situation, Snapshot
from gearshift.observe.store import PlanKey, Store, memory_store
from gearshift.observe.store.database import Database
from gearshift.plan import Objective, Plan, Region
from gearshift.predict.table import Table

WALL_CLOCKS = {"time", "time_ns", "localtime", "gmtime", "ctime"}
WALL_READS = {*(f"time.{name}" for name in WALL_CLOCKS), "datetime.now", "datetime.datetime.now"}
WORST = {(EAGER, 0): 0.02, (TWO, 0): 0.02, (ONE, 0): 0.2}


@pytest.mark.parametrize("seconds", [math.nan, math.inf, -1.0, 0.0])
def test_G1_what_is_no_number_is_caught_before_use(seconds: float) -> None:
    world = World()
    wrong = Proposal(plan=TWO, how=How.ADOPT, reason="?", predicted_s=seconds, current_s=1.0)
    world.live(loop(world, Asking(Always(wrong))), 5)
    assert world.plan == EAGER
    table = Table(CORES)
    situation = Situation(signature="x", neighbours=0)
    table.add(Sample(plan="p", situation=situation, seconds=(seconds,) * 20))
    assert table.measured(situation, "p") is None


class Raising(Always):
    def propose(self, snapshot: Snapshot, options: Options) -> Proposal | None:
        raise ValueError("weights are not numbers")


@pytest.mark.parametrize(
    "policy",
    [
        Raising(None),
        Always(Proposal(plan=ONE, how=How.TRY, reason="?", predicted_s=math.nan, current_s=1.0)),
    ],
)
def test_G1_a_policy_gone_mad_is_replaced_by_plain_rules(policy: Policy) -> None:
    world = World()
    control = InProcess(mind())
    control.mind.policy = policy
    running = loop(world, control)
    world.live(running, 20)
    assert control.mind.policy.name == "rules"
    assert world.plan == TWO, "which rules propose on a quiet machine"
    assert all(control.mind.options.mask), "no plan is to blame"


@pytest.mark.capability("core.explore-bound")
@pytest.mark.parametrize("how", [How.TRY, How.ADOPT])
def test_G2_the_worst_plan_costs_no_more_than_the_budget(how: How) -> None:
    world = World(WORST)
    bad = Proposal(plan=ONE, how=how, reason="trust me", predicted_s=0.001, current_s=0.02)
    running = loop(world, Asking(Always(bad)), Limits(explore_share=0.02))
    world.live(running, 120)
    assert world.plan == EAGER
    lost_s = sum(t - 0.02 for _, plan, t in world.calls if plan == ONE)
    total_s = sum(t for _, _, t in world.calls)
    one_call_s = max(t for _, plan, t in world.calls if plan == ONE)
    assert lost_s <= 0.02 * total_s + one_call_s
    assert running.guard.frozen_until_s > world.now_s - 60, "and then it is not heard"


def test_G3_illegal_plans_are_refused_again() -> None:
    world = World()
    alien = Plan(regions=(Region(ops=("nowhere",)),))
    running = loop(world, Asking(Always(Proposal(plan=alien, how=How.ADOPT, reason="?"))))
    world.live(running, 3)
    assert world.plan == EAGER
    assert any(
        outcome.why.startswith("refused: not one") for outcome in running.changeover.outcomes
    )


def test_G1_a_policy_that_fails_to_learn_is_replaced_by_rules() -> None:
    made = mind(memory_store())

    def fail(outcome: Outcome) -> None:
        raise ValueError("nan")

    made.policy.learn = fail  # type: ignore[method-assign]
    made.hear(Outcome(plan=TWO.fingerprint, how=How.TRY, kept=False, why="slower"))
    assert made.policy.name == "rules"


@pytest.mark.parametrize("dwell_s", [1.0, 6.0])
def test_G4_oscillating_readings_do_not_make_plans_oscillate(dwell_s: float) -> None:
    """The readings change every 0.35 s; a plan stays for its time, whatever they tell."""
    limits = Limits(dwell_s=dwell_s)
    world = World()
    running = loop(world, limits=limits)
    world.live_among(running, 0, 1, seconds=60)
    world.switches.clear()
    for index in range(200):
        world.neighbours = index % 2
        world.live(running, 0.35)
    assert world.switches, "else nothing was shown"
    gaps = [b - a for (a, _), (b, _) in zip(world.switches, world.switches[1:], strict=False)]
    assert all(gap >= 0.3 * dwell_s - 0.01 for gap in gaps)
    minutes = 200 * 0.35 / 60
    assert len(world.switches) <= limits.switches_per_minute * (minutes + 1)


def test_G6_the_wall_clock_is_not_asked() -> None:
    """Nobody reads it but the store and the report, which only write it down; so a jump can do
    nothing."""
    asked = set()
    for path in Path(gearshift.__file__).parent.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.ImportFrom) and node.module == "time":
                asked |= {path.name for alias in node.names if alias.name in WALL_CLOCKS}
            elif isinstance(node, ast.Attribute) and ast.unparse(node) in WALL_READS:
                asked.add(path.name)
    assert asked == {"store.py", "tell.py"}


def test_G6_a_store_whose_clock_jumps_still_tells_all_it_knows(tmp_path: Path) -> None:
    clock = [2e9]
    key = PlanKey(signature="x", context="neighbours 0", **KEY)
    for jump_s in (0.0, 3600.0, -7200.0):
        clock[0] += jump_s
        with Store(Database(tmp_path / "profiles.db"), clock=lambda: clock[0]) as store:
            store.add_plan(key, TWO, [0.02] * 5, max_error=None)
            (row,) = store.plans(key)
    assert row.latency.count == 15


def snapshots(count: int) -> Iterable[Snapshot]:
    situation = Situation(signature="x", neighbours=0)
    for index in range(count):
        yield Snapshot(at_s=index * 1.0, plan=EAGER.fingerprint, trial=None, situation=situation)


def hello(tmp_path: object) -> Hello:
    return Hello(
        policy="bandit",
        plans=PLANS,
        num_cores=CORES,
        objective=Objective(),
        home=str(tmp_path),
        key=KEY,
    )


def test_G5_a_killed_control_plane_is_started_again(tmp_path: object) -> None:
    control = ChildProcess()
    control.greet(hello(tmp_path))
    try:
        asked = list(snapshots(100))
        control.ask(asked[0], [])
        first = control.pid
        assert first is not None
        os.kill(first, signal.SIGKILL)
        deadline_s = monotonic() + 20
        index = 0
        while control.pid in (first, None):
            assert monotonic() < deadline_s
            index += 1
            control.ask(asked[index % 100], [])
            sleep(0.05)
    finally:
        control.close()
    assert control.pid is None


def test_G5_a_silent_control_plane_is_replaced(tmp_path: object) -> None:
    """Stopped, so that it neither answers nor dies. The clock is the snapshots'."""
    control = ChildProcess()
    control.greet(hello(tmp_path))
    try:
        asked = list(snapshots(200))
        first = control.pid
        assert first is not None
        os.kill(first, signal.SIGSTOP)
        deadline_s = monotonic() + 30
        for snapshot in asked:
            start_s = monotonic()
            control.ask(replace(snapshot, at_s=snapshot.at_s * 0.5), [])
            assert monotonic() - start_s < 5, "nobody waits for it"
            if control.pid not in (first, None):
                break
            assert monotonic() < deadline_s
        assert control.pid not in (first, None)
    finally:
        control.close()


def test_E6_what_the_store_says_wrongly_is_found_out(tmp_path: Path) -> None:
    """A plausible row that is not true: the plan it praises serves, is measured, and goes."""
    store = memory_store()
    situation = Situation(signature="x", neighbours=0)
    key = PlanKey(signature="x", context=f"neighbours {situation.neighbours}", **KEY)
    store.add_plan(key, TWO, [0.02] * 9, max_error=None)
    store.add_plan(key, ONE, [0.001] * 9, max_error=None)
    store.add_plan(key, EAGER, [0.04] * 9, max_error=None)
    world = World({(EAGER, 0): 0.04, (TWO, 0): 0.02, (ONE, 0): 0.2})
    running = loop(world, InProcess(mind(store)))
    running.recall()
    assert world.plan == ONE
    start_s = world.now_s
    world.live(running, 60)
    assert world.plan == TWO
    on_it = [at_s for at_s, plan, _ in world.calls if plan == ONE]
    assert max(on_it) - start_s < 15, "for no longer than it takes to see it"
    assert len(world.switches) <= 6


def test_G5_calls_go_on_without_a_control_plane() -> None:
    model, x = mlp()
    with gearshift.adapt(model, x, policy="bandit") as runtime, torch.no_grad():
        expected = model(x)
        control = runtime._loop.control  # type: ignore[union-attr]
        deadline_s = monotonic() + 30
        while control.pid is None:  # type: ignore[attr-defined]
            runtime(x)
            assert monotonic() < deadline_s
        os.kill(control.pid, signal.SIGSTOP)  # type: ignore[attr-defined]
        for _ in range(50):
            torch.testing.assert_close(runtime(x), expected, atol=1e-5, rtol=1e-4)
        os.kill(control.pid, signal.SIGKILL)  # type: ignore[attr-defined]
        for _ in range(50):
            torch.testing.assert_close(runtime(x), expected, atol=1e-5, rtol=1e-4)


@pytest.mark.soak
def test_G5_a_control_plane_that_stands_still_for_ten_seconds_does_not_touch_calls() -> None:
    model, x = mlp()
    with gearshift.adapt(model, x, policy="bandit") as runtime, torch.no_grad():

        def p95_s(seconds: float) -> float:
            took_s = []
            end_s = monotonic() + seconds
            while monotonic() < end_s:
                start_s = perf_counter()
                runtime(x)
                took_s.append(perf_counter() - start_s)
            return sorted(took_s)[int(0.95 * len(took_s))]

        p95_s(10)  # until it has found its plan
        before_s = p95_s(10)
        control = runtime._loop.control  # type: ignore[union-attr]
        os.kill(control.pid, signal.SIGSTOP)  # type: ignore[attr-defined]
        assert p95_s(10) < 1.5 * before_s


def test_G5_a_control_process_that_cannot_be_started_is_done_without() -> None:
    control = ChildProcess(["/no/such/program"])
    control.greet(Hello(policy="bandit", plans=PLANS, num_cores=2, objective=Objective(), home=""))
    for now_s in (1.0, 1.1, 5.0):
        snapshot = Snapshot(at_s=now_s, plan="p", trial=None, situation=None)
        assert control.ask(snapshot, []) is None
    control.close()


def test_a_fork_leaves_the_control_process_to_its_parent() -> None:
    """Else it would not hear that the parent has closed its pipe, and could not save in peace."""
    command = [sys.executable, "-c", "import sys; sys.stdin.read(); sys.exit(7)"]
    control = ChildProcess(command)
    process = control._process
    assert process is not None
    told, tell = os.pipe()
    fork = os.fork()
    if fork == 0:
        control.abandon()
        os.close(tell)
        os.read(told, 1)  # until the parent is done
        os._exit(0)
    try:
        control.close()
        assert process.returncode == 7, "it ended by itself"
    finally:
        os.close(tell)
        os.waitpid(fork, 0)
