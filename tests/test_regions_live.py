"""Regions formed anew while calls flow: a part that a backend runs badly is found and mended."""

import json
from collections.abc import Callable
from pathlib import Path
from time import monotonic, sleep
from typing import Any

import pytest
import torch
from torch import nn

import gearshift
from gearshift.act.backends import BACKENDS, Executable, Order
from gearshift.act.backends.onnxruntime import OnnxRuntimeBackend
from gearshift.bench.models import squashed
from gearshift.capture.program import Fragment
from gearshift.decide.child import ROOFLINE
from gearshift.observe.hal.roofline import measure_roofline
from gearshift.observe.store import machine_key, open_store
from gearshift.plan import Rewrite
from gearshift.plan.cut import formed
from gearshift.tell import story_of
from gearshift.view.report import page

LIMP_S, DROWSY_S = 0.004, 0.02
LONG_S = 150


class Culprit(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.cumsum(x, 1) * 0.01


class Drowsy(nn.Module):
    """As the model itself runs it, any plan is better."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        sleep(DROWSY_S)
        return x + 1


class Limping(OnnxRuntimeBackend):
    """ONNX Runtime, but for one op that it runs badly."""

    name = "limping"

    def rewrites(self, num_cores: int) -> tuple[Rewrite, ...]:
        return (Rewrite(backend=self.name, threads=num_cores),)

    def build(self, order: Order) -> Executable:
        built = super().build(order)
        scopes = [order.fragment.graph.by_name[op].scope for op in order.ops]
        if not any("culprit" in scope for scope in scopes):
            return built

        def run(*inputs: Any) -> Any:
            sleep(LIMP_S)
            return built.run(*inputs)

        return Executable(
            run=run,
            inputs=built.inputs,
            sizes=built.sizes,
            outputs=built.outputs,
            held_bytes=built.held_bytes,
        )


def model() -> nn.Module:
    torch.manual_seed(0)
    blocks = [nn.Sequential(nn.Linear(768, 768), nn.GELU()) for _ in range(8)]
    parts = {f"block{i}": block for i, block in enumerate(blocks[:4])}
    parts |= {"culprit": Culprit()}
    parts |= {f"block{i}": block for i, block in enumerate(blocks[4:], 4)}
    parts |= {"drowsy": Drowsy()}
    made = nn.Sequential()
    for name, part in parts.items():
        made.add_module(name, part)
    return made.eval()


def no_other_backends(monkeypatch: pytest.MonkeyPatch) -> None:
    def nothing(fragment: Fragment) -> frozenset[str]:
        return frozenset()

    for name in ("onnxruntime", "openvino", "inductor"):
        monkeypatch.setattr(BACKENDS[name], "runnable", nothing)
    monkeypatch.setitem(BACKENDS, Limping.name, Limping())


def call_until(
    runtime: gearshift.Runtime, x: torch.Tensor, done: Callable[[], bool], told: str
) -> None:
    end_s = monotonic() + LONG_S
    with torch.no_grad():
        while not done():
            runtime(x)
            assert monotonic() < end_s, f"{told}\n{runtime.explain()}"


@pytest.fixture
def home(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """With the machine's roofline known already."""
    monkeypatch.setenv("GEARSHIFT_HOME", str(tmp_path))
    with open_store(tmp_path) as store:
        store.set_fact(machine_key(), ROOFLINE, json.dumps(measure_roofline().to_dict()))
    return tmp_path


@pytest.mark.soak
@pytest.mark.capability("region.divide")
@pytest.mark.capability("region.pipeline")
@pytest.mark.capability("region.monitor")
def test_a_part_that_a_backend_runs_badly_is_found_divided_off_and_mended(
    monkeypatch: pytest.MonkeyPatch, home: Path
) -> None:
    no_other_backends(monkeypatch)
    net, x = model(), torch.randn(64, 768)
    with torch.no_grad():
        expected = net(x)
    with gearshift.adapt(net, x, policy="bandit") as runtime:

        def mended() -> bool:
            torch.testing.assert_close(runtime(x), expected, atol=1e-4, rtol=1e-4)
            return any(d.serves and "divided" in d.reason for d in runtime.decisions)

        call_until(runtime, x, mended, "the culprit runs by PyTorch")
        regions = runtime.plan.regions
        assert len(regions) > 1
        (culprit,) = [r for r in regions if any("cumsum" in op for op in r.ops)]
        assert culprit.rewrite.backend == "eager"
        told = [d for d in runtime.decisions if d.serves and "divided" in d.reason]
        assert told[-1].measured_gain is not None
        assert told[-1].measured_gain > 1.1

        def drawn() -> bool:
            story = story_of(runtime)
            timed = all(box.mean_s for box in story.boxes)
            return timed and len(story.cuts) > 1 and len(story.cuts[-1].strips) > 1

        call_until(runtime, x, drawn, "regions are timed, and seen to divide")
        story = story_of(runtime)
        assert all(box.moved_bytes for box in story.boxes)
        assert "Regions over time" in page(story)


@pytest.mark.soak
def test_an_op_that_real_backends_run_badly_is_found_and_divided_off(home: Path) -> None:
    net, (x,) = squashed()
    with torch.no_grad():
        expected = net(x)
    with gearshift.adapt(net, x, policy="bandit") as runtime:

        def mended() -> bool:
            return any(d.serves and "divided" in d.reason for d in runtime.decisions)

        call_until(runtime, x, mended, "the squashing runs by PyTorch")
        torch.testing.assert_close(runtime(x), expected, atol=1e-4, rtol=1e-4)
        (culprit,) = [r for r in runtime.plan.regions if any("asinh" in op for op in r.ops)]
        assert culprit.rewrite.backend in ("eager", "inductor")


@pytest.mark.soak
@pytest.mark.capability("region.merge")
def test_many_small_regions_are_merged(home: Path) -> None:
    torch.manual_seed(0)
    blocks = [nn.Sequential(nn.Linear(256, 256), nn.ReLU()) for _ in range(11)]
    net, x = nn.Sequential(*blocks, Drowsy()).eval(), torch.randn(1, 256)
    like = gearshift.Region(ops=(), rewrite=Rewrite(backend="onnxruntime", threads=1))
    with gearshift.adapt(net, x, policy="bandit", initial_granularity=1) as runtime:
        many = len(formed(runtime.program.graph, granularity=1, like=like).regions)
        assert many == 12

        def merged() -> bool:
            return any(d.serves and "merged" in d.reason for d in runtime.decisions)

        call_until(runtime, x, merged, "regions are merged")
        assert len(runtime.plan.regions) < many
