"""The whole loop for real: counters, control process, trials on live calls, store."""

import os
import threading
from collections.abc import Callable, Collection
from pathlib import Path
from time import monotonic, sleep

import psutil
import pytest
import torch
from torch import nn

import gearshift
from gearshift.busy import Neighbour, busy
from gearshift.capture.load import capture
from gearshift.decide.guard import Limits
from gearshift.errors import VerifyError
from gearshift.ir.region import identity
from gearshift.ir.snapshot import Situation
from gearshift.observe.store import PlanKey, machine_key, open_store, versions_key
from gearshift.plan.legal import candidates
from gearshift.plan.plan import whole

LONG_S = 60
AT_ONCE = Limits(setup_s=0)
"""Nothing is made ready before the first call."""
BRIEFLY = Limits(setup_s=1)
STARTING_S = 0.3
"""A busy process needs so long to be busy."""


def many_layers() -> tuple[nn.Module, torch.Tensor]:
    """Where eager's own overhead is most of the time, so that other plans are clearly better."""
    torch.manual_seed(0)
    layers = [nn.Sequential(nn.Linear(64, 64), nn.LayerNorm(64), nn.GELU()) for _ in range(16)]
    return nn.Sequential(*layers).eval(), torch.randn(16, 64)


def until_adapted(runtime: gearshift.Runtime, model: nn.Module, x: torch.Tensor) -> float:
    """Calls until another plan than eager serves; seconds it took."""
    start_s = monotonic()
    eager = whole(runtime.program.graph)
    with torch.no_grad():
        expected = model(x)
        while runtime.plan == eager:
            torch.testing.assert_close(runtime(x), expected, atol=1e-4, rtol=1e-4)
            assert monotonic() - start_s < LONG_S, runtime.explain()
    return monotonic() - start_s


def call_for(runtime: gearshift.Runtime, x: torch.Tensor, seconds: float) -> None:
    end_s = monotonic() + seconds
    with torch.no_grad():
        while monotonic() < end_s:
            runtime(x)


@pytest.mark.capability("core.never-slower")
@pytest.mark.capability("core.explain")
@pytest.mark.capability("core.store")
def test_adapt_adapts_and_remembers(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("GEARSHIFT_HOME", str(tmp_path))
    model, x = many_layers()
    for start in ("cold", "warm"):
        before = set(threading.enumerate())
        with gearshift.adapt(model, x, policy="bandit", limits=AT_ONCE) as runtime:
            if start == "warm":
                assert runtime.plan != whole(runtime.program.graph), "from the first call"
            until_adapted(runtime, model, x)
            call_for(runtime, x, 1.5)
            decision = next(d for d in runtime.decisions if d.outcome.startswith("serves"))
            assert decision.measured_gain is None or decision.measured_gain > 1
            words = "known to be the best" if start == "warm" else "may be better"
            assert any(words in d.reason for d in runtime.decisions), runtime.explain()
            assert str(decision) in runtime.explain()
        assert not psutil.Process().children()
        left = {t.name for t in set(threading.enumerate()) - before if "gearshift" in t.name}
        assert left <= {"gearshift control"}, "which ends with the pipe it reads"
    assert (tmp_path / "profiles.db").exists()


def test_a_first_start_rehearses_and_serves_the_best_from_the_first_call(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("GEARSHIFT_HOME", str(tmp_path))
    model, x = many_layers()
    with gearshift.adapt(model, x, policy="bandit") as runtime, torch.no_grad():
        assert runtime.plan != whole(runtime.program.graph), runtime.explain()
        rehearsed = {d.plan for d in runtime.decisions if d.outcome == "stands by"}
        assert len(rehearsed) > 1
        assert runtime.plan.fingerprint in rehearsed
        assert "took least on the example" in runtime.decisions[-1].reason
        assert "plans in" in runtime.explain(), "how long it took"
        loop = runtime._loop
        assert loop is not None
        assert loop.guard.served_s == 0, "these were no calls"
        assert loop.guard.spent_s == 0, "and no trials"
        torch.testing.assert_close(runtime(x), model(x), atol=1e-4, rtol=1e-4)
    with gearshift.adapt(model, x, policy="bandit") as runtime:
        assert runtime.plan != whole(runtime.program.graph)
        assert runtime._loop is not None
        assert runtime._loop.rehearsed[0] == 0, "all was known"


def test_a_model_in_training_mode_is_not_rehearsed() -> None:
    model = nn.Sequential(nn.Linear(8, 8), nn.BatchNorm1d(8)).eval()
    program = capture(model, torch.randn(4, 8), {})
    model.train()
    before = model[1].running_mean.clone()
    with gearshift.adapt(program, policy="bandit"):
        torch.testing.assert_close(model[1].running_mean, before)


def test_what_fails_before_the_first_call_does_not_keep_anybody_from_calling(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    def fail(*args: object) -> None:
        raise RuntimeError("on purpose")

    monkeypatch.setenv("GEARSHIFT_HOME", str(tmp_path))
    monkeypatch.setattr("gearshift.adaptive.rehearse", fail)
    model, x = many_layers()
    with gearshift.adapt(model, x, policy="bandit") as runtime, torch.no_grad():
        torch.testing.assert_close(runtime(x), model(x), atol=1e-4, rtol=1e-4)


def test_an_interrupt_before_the_first_call_leaves_nothing_behind(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    def interrupt(*args: object, **named: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setenv("GEARSHIFT_HOME", str(tmp_path))
    monkeypatch.setattr("gearshift.adaptive.rehearse", interrupt)
    before = set(threading.enumerate())
    model, x = many_layers()
    with pytest.raises(KeyboardInterrupt):
        gearshift.adapt(model, x, policy="bandit")
    assert not psutil.Process().children()
    end_s = monotonic() + 10
    while any("gearshift" in t.name for t in set(threading.enumerate()) - before):
        assert monotonic() < end_s, set(threading.enumerate()) - before
        sleep(0.05)


@pytest.mark.capability("core.monitor")
@pytest.mark.capability("core.hal")
def test_what_is_seen_and_what_it_costs_is_told() -> None:
    model, x = many_layers()
    with gearshift.adapt(model, x, policy="bandit", limits=BRIEFLY) as runtime:
        end_s = monotonic() + LONG_S
        call_for(runtime, x, 4)  # beside the start of the control process
        while "J a call (" not in (told := runtime.explain()):
            call_for(runtime, x, 1)
            assert monotonic() < end_s, told
        assert "situation: float32[16, 64]" in told
        assert "our run delay" in told
        (line,) = [line for line in told.splitlines() if line.startswith("cost of monitoring")]
        shares = [float(word.strip("%")) for word in line.split() if word.endswith("%")]
        here, there = shares
        assert 0 < here < 10
        assert 0 < there < 100, "the start of the process is in it"
        assert "cost of trials" in told


def test_a_plan_asked_for_by_hand_stays_until_released() -> None:
    model, x = many_layers()
    with gearshift.adapt(model, x, policy="bandit", limits=BRIEFLY) as runtime, torch.no_grad():
        eager = whole(runtime.program.graph)
        runtime.swap(eager)
        call_for(runtime, x, 2)
        assert runtime.plan == eager
        runtime.release()
        until_adapted(runtime, model, x)


def test_a_plan_caught_wrong_does_not_come_back() -> None:
    model, x = many_layers()
    with gearshift.adapt(model, x, policy="bandit", limits=BRIEFLY) as runtime, torch.no_grad():
        until_adapted(runtime, model, x)
        wrong = runtime.plan
        runtime._mishaps.caught(wrong, VerifyError("off by one"))
        end_s = monotonic() + 5
        while monotonic() < end_s:
            runtime(x)
            assert runtime.plan != wrong
        assert "rolled back: off by one" in runtime.explain()
        runtime.swap(wrong)
        assert runtime.plan == wrong, "unless the user insists"


def until(runtime: gearshift.Runtime, x: torch.Tensor, reached: Callable[[], bool]) -> None:
    end_s = monotonic() + LONG_S
    while not reached():
        call_for(runtime, x, 0.05)
        assert monotonic() < end_s, runtime.explain()


def threads_of(plan: gearshift.Plan) -> int | None:
    return plan.regions[0].rewrite.threads


@pytest.mark.capability("core.never-slower")
def test_a_neighbour_is_seen_to_come_and_go_and_the_plan_follows() -> None:
    """By fixed rules, so that it is known what to expect."""
    num_cores = len(os.sched_getaffinity(0))
    torch.manual_seed(0)
    model = nn.Sequential(*[nn.Linear(512, 512) for _ in range(8)]).eval()
    x = torch.randn(256, 512)
    limits = Limits(explore_share=1.0, build_share=1.0)
    with gearshift.adapt(model, x, policy="rules", limits=limits) as runtime:
        loop = runtime._loop
        assert loop is not None

        def neighbours() -> int:
            seen = loop.seen
            return 0 if seen is None or seen.situation is None else seen.situation.neighbours

        def decided(why: str, after: int = 0) -> bool:
            """Whether all cores are in use is then up to what was measured."""
            return any(why in d.reason and d.number > after for d in runtime.decisions)

        until(runtime, x, lambda: decided("on a quiet machine"))
        with busy([Neighbour(kind="arithmetic", core=0)]):
            until(runtime, x, lambda: neighbours() == 1)
            until(runtime, x, lambda: decided("beside neighbours"))
        count = runtime.decisions[-1].number
        until(runtime, x, lambda: neighbours() == 0)
        until(
            runtime,
            x,
            lambda: threads_of(runtime.plan) == num_cores or decided("on a quiet machine", count),
        )


@pytest.mark.capability("core.store")
def test_E1_a_full_disk_does_not_touch_calls(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """A home on which nothing can be written: the runtime adapts and answers all the same."""
    home = tmp_path / "home"
    home.write_text("no folder")
    monkeypatch.setenv("GEARSHIFT_HOME", str(home / "inside"))
    model, x = many_layers()
    with gearshift.adapt(model, x, policy="bandit", limits=BRIEFLY) as runtime:
        until_adapted(runtime, model, x)
        until(runtime, x, lambda: "store: memory" in runtime.explain())


def teach(
    home: Path,
    model: nn.Module,
    x: torch.Tensor,
    best: dict[int, str],
    others: Collection[str] = (),
    slower: float = 3.0,
) -> dict[int, str]:
    """Has the store say which plan is best beside so many neighbours, those of other situations and
    all others so many times slower; the fingerprints of the best."""
    with gearshift.adapt(model, x, policy="keep") as runtime, open_store(home) as store:
        plans = {p.summary: p for p in candidates(runtime.space).values()}
        graph = runtime.program.graph
        key = {
            "machine": machine_key(),
            "versions": versions_key(),
            "graph": identity(graph, [op.name for op in graph.ops]),
            "signature": f"float32{list(x.shape)}",
        }
        for neighbours in best:
            for other in {*best.values(), *others}:
                took_s = 0.001 if other == best[neighbours] else 0.001 * slower
                place = PlanKey(context=f"neighbours {neighbours}", **key)
                store.add_plan(place, plans[other], [took_s] * 20, max_error=None)
        return {count: plans[name].fingerprint for count, name in best.items()}


@pytest.mark.capability("core.store")
def test_a_second_start_is_at_its_best_plan_before_the_first_call(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    model, x = many_layers()
    for best in ("onnxruntime x1", "openvino x1"):
        home = tmp_path / best
        monkeypatch.setenv("GEARSHIFT_HOME", str(home))
        teach(home, model, x, {0: best, 1: best}, others=["eager", "onnxruntime x2"])
        with gearshift.adapt(model, x, policy="bandit") as runtime:
            assert runtime.plan.summary == best, runtime.explain()
            assert runtime._loop is not None
            assert runtime._loop.rehearsed[0] == 0


@pytest.mark.capability("core.objective")
def test_a_runtime_told_to_save_energy_begins_with_fewer_threads(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """All threads take a little less time, and nearly twice the CPU time."""
    monkeypatch.setenv("GEARSHIFT_HOME", str(tmp_path))
    model, x = many_layers()
    fast, sparing = "onnxruntime x2", "onnxruntime x1"
    teach(tmp_path, model, x, {0: fast, 1: fast}, others=[sparing], slower=1.15)
    for objective, best in ((None, fast), (gearshift.Objective(latency=0.1, energy=0.9), sparing)):
        with gearshift.adapt(model, x, policy="bandit", objective=objective) as runtime:
            assert runtime.plan.summary == best, runtime.explain()


@pytest.mark.soak
def test_a_neighbour_changes_the_plan_within_a_second_and_back(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """By the bandit, from what an earlier start knew: the change itself, whatever it gains."""
    monkeypatch.setenv("GEARSHIFT_HOME", str(tmp_path))
    torch.manual_seed(0)
    model = nn.Sequential(*[nn.Linear(512, 512) for _ in range(4)]).eval()
    x = torch.randn(64, 512)
    best = teach(tmp_path, model, x, {0: "onnxruntime x2", 1: "onnxruntime x1"})
    with gearshift.adapt(model, x, policy="bandit") as runtime:
        assert runtime.plan.fingerprint == best[0]
        call_for(runtime, x, 2)
        for count, neighbours in ((1, [Neighbour(kind="arithmetic", core=0)]), (0, [])):
            with busy(neighbours):
                start_s = monotonic()
                until(runtime, x, lambda count=count: runtime.plan.fingerprint == best[count])
                assert monotonic() - start_s < 1.0 + STARTING_S, runtime.explain()
                call_for(runtime, x, 2)


class InParts(nn.Module):
    """A branch on a value: only its layers can be captured."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = many_layers()[0], nn.Linear(64, 64)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = self.first(x)
        return self.second(y) if float(y.sum()) > 0 else self.second(-y)


def test_sizes_are_told_apart_for_a_model_captured_in_parts() -> None:
    model, x = InParts().eval(), torch.randn(16, 64)
    with pytest.warns(UserWarning, match="not captured"):
        runtime = gearshift.adapt(model, x, policy="bandit", limits=AT_ONCE)
    with runtime:
        loop = runtime._loop
        assert loop is not None

        def known(rows: int) -> list[Situation]:
            told = f"float32[{rows}, 64]"
            return [s for s in loop.guard.model.situations() if s.signature == told]

        for rows in (16, 48):
            until(runtime, torch.randn(rows, 64), lambda rows=rows: bool(known(rows)))


def test_a_model_captured_in_parts_is_rehearsed_and_its_own_python_run_a_few_times(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("GEARSHIFT_HOME", str(tmp_path))
    ran = []

    class Told(InParts):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            ran.append(x)
            return super().forward(x)

    with pytest.warns(UserWarning, match="not captured"):
        runtime = gearshift.adapt(Told().eval(), torch.randn(16, 64), policy="bandit")
    with runtime:
        assert runtime._loop is not None
        num_timed, _ = runtime._loop.rehearsed
        assert num_timed > 1
        assert len(ran) < 50 * num_timed, "by the clock it would be hundreds of times"


def test_an_unknown_policy_is_refused_by_name() -> None:
    with pytest.raises(gearshift.GearshiftError, match="there are bandit"):
        gearshift.adapt(nn.Linear(2, 2).eval(), torch.randn(1, 2), policy="wish")
