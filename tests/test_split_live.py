"""Splits while calls flow: chosen by a policy, following neighbours that come and go, and told."""

import os
from collections.abc import Callable
from pathlib import Path
from time import monotonic

import numpy as np
import pytest
import torch
from torch import nn

import gearshift
from gearshift.act.backends import BACKENDS
from gearshift.adaptive import subject_of
from gearshift.busy import Neighbour, busy
from gearshift.decide.split.agent import ROLE, SHIPPED
from gearshift.decide.split.sight import engines_of
from gearshift.ir.topology import CALLER
from gearshift.plan import Region, Rewrite, Split
from gearshift.plan.legal import candidates
from gearshift.plan.plan import whole
from gearshift.tell import story_of
from gearshift.view.report import page

CORES = sorted(os.sched_getaffinity(0))[:2]
ENGINES = [f"cpu:{core}" for core in CORES]
LONG_S = 60


def model_and_rows() -> tuple[nn.Module, torch.Tensor]:
    torch.manual_seed(0)
    layers = [nn.Sequential(nn.Linear(512, 512), nn.ReLU()) for _ in range(6)]
    return nn.Sequential(*layers).eval(), torch.randn(64, 512)


def call_until(
    runtime: gearshift.Runtime, x: torch.Tensor, done: Callable[[], bool], told: str
) -> None:
    end_s = monotonic() + LONG_S
    with torch.no_grad():
        while not done():
            runtime(x)
            assert monotonic() < end_s, f"{told}\n{runtime.explain()}"


@pytest.mark.capability("split.recover")
def test_the_share_of_a_slow_engine_moves_and_comes_back() -> None:
    model, x = model_and_rows()
    with gearshift.adapt(model, x, policy="keep") as runtime:
        runtime.swap(divided(runtime))

        def second() -> float:
            """The mean share of the second engine in the last calls."""
            for _ in range(40):
                runtime(x)
            calls = [timing.parts for _, timing in runtime._serving.timings()][-40:]
            shares = [next(iter(parts.values())).get(ENGINES[1], (0.0, 0.0))[0] for parts in calls]
            return sum(shares) / len(shares)

        for _ in range(5):
            before = second()
        with busy([Neighbour(kind="arithmetic", core=CORES[1])]):
            call_until(runtime, x, lambda: second() < 0.85 * before, "it has less")
            less = second()
        call_until(runtime, x, lambda: second() > max(less, 0.9 * before), "and has it back")
        with torch.no_grad():
            torch.testing.assert_close(runtime(x), model(x), atol=1e-4, rtol=1e-4)


@pytest.mark.capability("split.region")
def test_adapt_divides_by_itself_where_that_is_faster(monkeypatch: pytest.MonkeyPatch) -> None:
    """Among plans of one thread each, two engines are about twice as fast."""
    for backend in BACKENDS.values():
        single = [rewrite for rewrite in backend.rewrites(2) if rewrite.threads == 1]
        monkeypatch.setattr(backend, "rewrites", lambda cores, single=single: single)
    torch.manual_seed(0)
    block = (nn.Conv2d(48, 48, 3, padding=1), nn.BatchNorm2d(48), nn.ReLU())
    model, x = nn.Sequential(*block * 4).eval(), torch.randn(8, 48, 32, 32)
    with gearshift.adapt(model, x, policy="bandit") as runtime:

        def is_divided() -> bool:
            return runtime.plan.regions[0].split is not None

        call_until(runtime, x, is_divided, "it divides the model")
        with torch.no_grad():
            torch.testing.assert_close(runtime(x), model(x), atol=1e-4, rtol=1e-4)


CALLS = 20


class Centred(nn.Module):
    """In the middle every row is compared with the others."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.before, self.after = nn.Linear(64, 64), nn.Linear(64, 64)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = torch.relu(self.before(x))
        return torch.relu(self.after(y - y.mean(0)))


@pytest.mark.capability("split.region")
def test_what_cannot_be_divided_whole_is_divided_as_far_as_that_is_legal() -> None:
    model, x = Centred().eval(), torch.randn(16, 64)
    with gearshift.adapt(model, x, policy="keep") as runtime, torch.no_grad():
        plans = candidates(runtime.space).values()
        divided = [plan for plan in plans if any(region.split for region in plan.regions)]
        assert {plan.regions[0].rewrite.backend for plan in divided} == {"onnxruntime", "openvino"}
        for plan in divided:
            parts = [region.split is not None for region in plan.regions]
            assert parts == [True, False, True], "before the mean, the mean, after it"
            runtime.swap(plan)
            for _ in range(CALLS):
                torch.testing.assert_close(runtime(x), model(x), atol=1e-5, rtol=1e-5)
        at_work = [
            sorted(len(spans) for spans in timing.spans.values())
            for _, timing in runtime._serving.timings()
        ]
        assert [1, 2, 2] in at_work, "shares of so little may leave an engine out now and then"


@pytest.mark.capability("split.none")
@pytest.mark.parametrize("engine", [CALLER, *ENGINES])
def test_not_dividing_is_a_choice_on_any_engine(engine: str) -> None:
    model, x = model_and_rows()
    with gearshift.adapt(model, x, policy="keep") as runtime, torch.no_grad():
        ops = tuple(op.name for op in runtime.program.graph.ops)
        rewrite = Rewrite(backend="onnxruntime", threads=1)
        region = Region(ops=ops, engine=engine, rewrite=rewrite)
        runtime.swap(gearshift.Plan(regions=(region,)))
        torch.testing.assert_close(runtime(x), model(x), atol=1e-4, rtol=1e-4)
        (timing,) = [timing for _, timing in runtime._serving.timings()][-1:]
        assert [name for name, *_ in next(iter(timing.spans.values()))] == [engine]


def divided(runtime: gearshift.Runtime) -> gearshift.Plan:
    rewrite = Rewrite(backend="onnxruntime", threads=1)
    graph, team = runtime.program.graph, "+".join(ENGINES)
    return whole(graph, engine=team, rewrite=rewrite, split=Split())


@pytest.mark.capability("split.dqn")
def test_the_agent_learns_from_the_calls_it_serves(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """In the control process; what it learned is kept, and is not what was shipped. It is asked
    more often here than once a second."""
    monkeypatch.setenv("GEARSHIFT_HOME", str(tmp_path))
    monkeypatch.setattr("gearshift.loop.CALM_S", 0.02)
    model, x = model_and_rows()
    mine = ROLE.own_file(tmp_path)
    with gearshift.adapt(model, x, policy="dqn") as runtime:
        runtime.swap(divided(runtime))
        call_until(runtime, x, mine.exists, "it learns")
    kept = ROLE.read(mine)
    assert isinstance(kept.about["lessons"], int)
    assert kept.about["lessons"] >= 100
    shipped = ROLE.read(SHIPPED).network.parameters
    assert not all(map(np.array_equal, kept.network.parameters, shipped))


@pytest.mark.capability("split.state")
def test_a_neighbour_of_one_engine_is_what_the_network_sees_there() -> None:
    model, x = model_and_rows()
    with gearshift.adapt(model, x, policy="bandit") as runtime:
        loop, subject = runtime._loop, subject_of(runtime, runtime.space)
        assert loop is not None
        assert subject is not None
        runtime.swap(divided(runtime))

        def shares(member: int) -> list[float]:
            """What others have of its core, and for how long its thread waits for that."""
            engine = engines_of(list(loop.history)[-1], subject, None)[member]
            told = (engine.others_share, engine.run_delay_share)
            return [-1.0 if share is None else share for share in told]

        def told() -> bool:
            if len(loop.history) == 0 or runtime.plan != divided(runtime):
                return False
            free, crowded = shares(0), shares(1)
            return min(crowded) > 0.2 and all(
                0 <= a < b for a, b in zip(free, crowded, strict=True)
            )

        with busy([Neighbour(kind="arithmetic", core=CORES[1])]):
            call_until(runtime, x, told, "the second engine has a neighbour, the first has none")


@pytest.mark.parametrize("policy", ["share", "greedy", "dqn"])
def test_a_splitting_policy_serves_and_its_split_is_told(
    policy: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("GEARSHIFT_HOME", str(tmp_path))
    model, x = model_and_rows()
    with torch.no_grad():
        expected = model(x)
    with gearshift.adapt(model, x, policy=policy) as runtime:

        def decided() -> bool:
            torch.testing.assert_close(runtime(x), expected, atol=1e-4, rtol=1e-4)
            return any(policy in decision.reason for decision in runtime.decisions)

        call_until(runtime, x, decided, f"{policy} proposes")
        runtime.swap(divided(runtime))
        loop = runtime._loop
        assert loop is not None

        def told() -> bool:
            shares = [snapshot for snapshot in loop.history if snapshot.shares]
            return len(shares) > 1 and "reward of the split: time" in runtime.explain()

        call_until(runtime, x, told, "what the split in force earned")
        assert all(name in runtime.explain() for name in ("balance", "transfer", "memory"))
        story = story_of(runtime)
        (box,) = story.boxes
        assert box.split == "rows"
        assert set(box.shares) == set(ENGINES)
        assert sum(share for share, _ in box.shares.values()) == pytest.approx(1.0, abs=0.01)
        assert all(busy_s > 0 for _, busy_s in box.shares.values())
        text = page(story)
        assert "busy in a call" in text
        assert all(f"share of {name}" in text for name in ENGINES)
