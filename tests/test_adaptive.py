"""The whole loop for real: counters, control process, trials on live calls, store."""

import threading
from pathlib import Path
from time import monotonic

import psutil
import pytest
import torch
from torch import nn

import gearshift
from gearshift.errors import VerifyError
from gearshift.plan.plan import whole

LONG_S = 60


def many_layers() -> tuple[nn.Module, torch.Tensor]:
    """Where eager's own overhead is most of the time, so that other plans are clearly better."""
    torch.manual_seed(0)
    layers = [nn.Sequential(nn.Linear(64, 64), nn.LayerNorm(64), nn.GELU()) for _ in range(40)]
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
        with gearshift.adapt(model, x, policy="bandit") as runtime:
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


@pytest.mark.capability("core.monitor")
@pytest.mark.capability("core.hal")
def test_what_is_seen_and_what_it_costs_is_told() -> None:
    model, x = many_layers()
    with gearshift.adapt(model, x, policy="bandit") as runtime:
        end_s = monotonic() + LONG_S
        while "J a call (" not in (told := runtime.explain()):
            call_for(runtime, x, 1)
            assert monotonic() < end_s, told
        assert "situation: float32[16, 64]" in told
        assert "our run delay" in told
        (line,) = [line for line in told.splitlines() if line.startswith("cost of monitoring")]
        shares = [float(word.strip("%")) for word in line.split() if word.endswith("%")]
        assert len(shares) == 2
        assert all(0 < share < 100 for share in shares)
        assert "cost of trials" in told


def test_a_plan_asked_for_by_hand_stays_until_released() -> None:
    model, x = many_layers()
    with gearshift.adapt(model, x, policy="bandit") as runtime, torch.no_grad():
        eager = whole(runtime.program.graph)
        runtime.swap(eager)
        call_for(runtime, x, 2)
        assert runtime.plan == eager
        runtime.release()
        until_adapted(runtime, model, x)


def test_a_plan_caught_wrong_does_not_come_back() -> None:
    model, x = many_layers()
    with gearshift.adapt(model, x, policy="bandit") as runtime, torch.no_grad():
        until_adapted(runtime, model, x)
        wrong = runtime.plan
        runtime._caught(wrong, VerifyError("off by one"))
        end_s = monotonic() + 5
        while monotonic() < end_s:
            runtime(x)
            assert runtime.plan != wrong
        assert "rolled back: off by one" in runtime.explain()
        runtime.swap(wrong)
        assert runtime.plan == wrong, "unless the user insists"


def test_an_unknown_policy_is_refused_by_name() -> None:
    with pytest.raises(gearshift.GearshiftError, match="there are bandit"):
        gearshift.adapt(nn.Linear(2, 2).eval(), torch.randn(1, 2), policy="wish")
