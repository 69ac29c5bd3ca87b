"""Each backend does its duty, by the checker anyone can run; what is special about some."""

import subprocess
import sys
from contextlib import suppress
from typing import Any

import pytest
import torch
from torch import nn

import gearshift
from gearshift.act.backends import BACKENDS, NullBackend, check_backend
from gearshift.capture.program import Fragment
from gearshift.errors import CompileError
from gearshift.plan import Region, Rewrite
from gearshift.plan.plan import whole


def small_model() -> nn.Module:
    torch.manual_seed(0)
    layers = [nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.ReLU(), nn.Flatten(), nn.Linear(144, 5)]
    return nn.Sequential(*layers).eval()


@pytest.fixture(scope="module")
def fragment() -> Fragment:
    return gearshift.adapt(small_model(), torch.randn(2, 3, 8, 8)).program.fragments[0]


@pytest.mark.parametrize("name", ["eager", "onnxruntime", "openvino", "inductor"])
def test_backend_does_its_duty(name: str, fragment: Fragment) -> None:
    check_backend(BACKENDS[name], fragment)


def test_the_checker_catches_a_backend_that_computes_nothing(fragment: Fragment) -> None:
    with pytest.raises(AssertionError, match="not close"):
        check_backend(NullBackend(), fragment)


def test_two_engines_that_come_to_openvino_first_do_not_wait_for_each_other() -> None:
    code = """
import sys, threading
from gearshift.act.backends.openvino import _core
sys.setswitchinterval(1e-6)
together = threading.Barrier(2)
def first():
    together.wait()
    _core()
    sys.modules["openvino"].Type.f32.to_dtype()
threads = [threading.Thread(target=first) for _ in range(2)]
[thread.start() for thread in threads]
[thread.join() for thread in threads]
"""
    for _ in range(3):
        subprocess.run([sys.executable, "-c", code], check=True, timeout=60)


@pytest.mark.soak
def test_inductor_serves_and_shares_the_weights() -> None:
    """Compiled in a child, loaded here; a creation op in the region must stay an op."""

    class Shifted(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.linear = nn.Linear(8, 8)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return nn.functional.gelu(self.linear(x)) + torch.arange(8)

    model, x = Shifted().eval(), torch.randn(3, 8)
    with gearshift.adapt(model, x) as runtime, torch.no_grad():
        runtime.swap(whole(runtime.program.graph, rewrite=Rewrite(backend="inductor")))
        torch.testing.assert_close(runtime(x), model(x))
        assert runtime.memory.region_bytes == 0
        assert runtime.coverage == 1.0
        others = torch.randn(5, 8)
        for _ in range(4):
            torch.testing.assert_close(runtime(others), model(others))
            assert runtime.settle(120)


def test_inductor_tells_why_it_cannot(monkeypatch: pytest.MonkeyPatch, fragment: Fragment) -> None:
    monkeypatch.setattr("gearshift.act.backends.inductor.CHILD", "gearshift.no_such_module")
    model, x = small_model(), torch.randn(2, 3, 8, 8)
    with gearshift.adapt(model, x) as runtime:
        before = runtime.plan
        with pytest.raises(CompileError, match="inductor"):
            runtime.swap(whole(runtime.program.graph, rewrite=Rewrite(backend="inductor")))
        assert runtime.plan == before


def test_spinning_and_threads_reach_the_session(monkeypatch: pytest.MonkeyPatch) -> None:
    """Threads of a whole model may spin on for a moment, those of a part must not: the next part's
    would starve."""
    import onnxruntime

    seen = []
    original = onnxruntime.InferenceSession

    def spy(model: bytes, options: onnxruntime.SessionOptions, **rest: object) -> object:
        spins = options.get_session_config_entry("session.intra_op.allow_spinning")
        seen.append((options.intra_op_num_threads, spins, _set(options, *SPIN_ENDS)))
        return original(model, options, **rest)

    monkeypatch.setattr(onnxruntime, "InferenceSession", spy)
    model, x = small_model(), torch.randn(2, 3, 8, 8)
    with gearshift.adapt(model, x, policy="keep") as runtime:
        ops = tuple(op.name for op in runtime.program.graph.ops)
        for threads, spin in ((1, False), (2, True)):
            rewrite = Rewrite(backend="onnxruntime", threads=threads, spin=spin)
            runtime.swap(gearshift.Plan(regions=(Region(ops=ops, rewrite=rewrite),)))
        parts = tuple(Region(ops=part, rewrite=rewrite) for part in (ops[:1], ops[1:]))
        runtime.swap(gearshift.Plan(regions=parts))
    after_a_moment, at_once = SPIN_ENDS
    assert seen[:2] == [(1, "0", [after_a_moment]), (2, "1", [after_a_moment])]
    assert seen[2:] == [(2, "1", [at_once])] * 2


SPIN_ENDS = ("session.intra_op.spin_duration_us", "session.force_spinning_stop")


def _set(options: Any, *keys: str) -> list[str]:
    """Those of the keys that were given a value."""
    found = []
    for key in keys:
        with suppress(RuntimeError):
            options.get_session_config_entry(key)
            found.append(key)
    return found
