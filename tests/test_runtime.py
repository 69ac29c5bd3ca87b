"""The runtime as a user meets it: memory, explanations, closing, delegation."""

import gc
import os
import subprocess
import sys
import threading
import weakref
from time import monotonic, sleep
from typing import Any

import pytest
import torch
from torch import nn

import gearshift
from gearshift.errors import MemoryLimitError, PlanError, UsageError, VerifyError
from gearshift.plan import Plan, Region, Rewrite
from gearshift.plan.cut import formed
from gearshift.plan.plan import whole

ORT = Rewrite(backend="onnxruntime", threads=1)


def two_layers() -> nn.Module:
    return nn.Sequential(nn.Linear(256, 256), nn.ReLU(), nn.Linear(256, 256)).eval()


def test_memory_counts_each_byte_once() -> None:
    model = two_layers()
    model[2].weight = model[0].weight
    weights = 4 * (256 * 256 + 2 * 256)
    with gearshift.adapt(model, torch.randn(4, 256)) as runtime:
        assert runtime.memory.total_bytes == weights
        runtime.swap(whole(runtime.program.graph, rewrite=ORT))
        assert runtime.memory.region_bytes == weights
        runtime.swap(whole(runtime.program.graph))
        assert runtime.settle(30)
        assert runtime.memory.total_bytes == weights


@pytest.mark.capability("core.objective")
def test_the_memory_limit_holds_while_a_plan_is_built() -> None:
    """Old and new plan are both held for a moment: that moment counts."""
    weights = 4 * 2 * (256 * 256 + 256)
    limit = gearshift.Objective(memory_limit=2 * weights + 1000)
    with gearshift.adapt(two_layers(), torch.randn(4, 256), objective=limit) as runtime:
        graph = runtime.program.graph
        runtime.swap(whole(graph, rewrite=ORT))
        served = runtime.plan
        with pytest.raises(MemoryLimitError, match="limit is 1 MB"):
            runtime.swap(whole(graph, rewrite=Rewrite(backend="openvino", threads=1)))
        assert runtime.plan == served
        runtime.swap(whole(graph))
        runtime.swap(whole(graph, rewrite=Rewrite(backend="openvino", threads=1)))


def test_regions_two_plans_share_are_built_once(monkeypatch: pytest.MonkeyPatch) -> None:
    from gearshift.act.backends import BACKENDS

    built = []
    backend = BACKENDS["onnxruntime"]
    original = backend.build
    monkeypatch.setattr(backend, "build", lambda order: built.append(order.ops) or original(order))
    with gearshift.adapt(two_layers(), torch.randn(4, 256)) as runtime:
        graph = runtime.program.graph
        plan = formed(graph, granularity=1, like=gearshift.Region(ops=(), rewrite=ORT))
        runtime.swap(plan)
        assert len(built) == 3
        last = plan.regions[-1]
        moved = gearshift.Plan(regions=(*plan.regions[:-1], gearshift.Region(ops=last.ops)))
        runtime.swap(moved)
        assert len(built) == 3


def test_explain_tells_the_plan_the_decisions_and_the_worst_error() -> None:
    with gearshift.adapt(two_layers(), torch.randn(4, 256)) as runtime:
        runtime.swap(whole(runtime.program.graph, rewrite=ORT), "because it is faster")
        text = runtime.explain()
        for part in (
            "onnxruntime x1",
            "3 ops",
            "because it is faster",
            "worst error",
            "MB weights",
            "policy: keep",
        ):
            assert part in text
        assert runtime.decisions[-1].plan == runtime.plan.fingerprint


def test_what_else_is_asked_the_model_answers() -> None:
    model = two_layers()
    with gearshift.adapt(model, torch.randn(4, 256)) as runtime:
        assert list(runtime.parameters()) == list(model.parameters())
        assert runtime.state_dict().keys() == model.state_dict().keys()
        with pytest.raises(AttributeError):
            runtime.no_such_thing  # noqa: B018


def test_after_close_the_model_still_answers_and_no_thread_is_left() -> None:
    model, x = two_layers(), torch.randn(4, 256)
    before = set(threading.enumerate())
    runtime = gearshift.adapt(model, x)
    runtime.swap(whole(runtime.program.graph, engine="cpu:0", rewrite=ORT))
    runtime(x)
    runtime.close()
    runtime.close()
    assert torch.equal(runtime(x), model(x))
    left = [thread for thread in threading.enumerate() if thread not in before]
    assert not [thread.name for thread in left if thread.name.startswith("gearshift")]


@pytest.mark.parametrize("example", [None, 3, "x"])
def test_examples_that_are_none_are_refused(example: object) -> None:
    with pytest.raises(UsageError, match="example_inputs is needed"):
        gearshift.adapt(two_layers(), example)


def test_a_model_that_does_not_run_on_its_example_is_the_users_mistake() -> None:
    with pytest.raises(UsageError, match="does not run on the example inputs"):
        gearshift.adapt(two_layers(), torch.randn(4, 255))


def test_outputs_are_plain_tensors_without_history() -> None:
    model, x = two_layers(), torch.randn(4, 256)
    with gearshift.adapt(model, x) as runtime:
        runtime.swap(whole(runtime.program.graph, rewrite=ORT))
        y = runtime(x)
        assert type(y) is torch.Tensor
        assert not y.requires_grad
        y.add_(1)
        wanting = x.clone().requires_grad_()
        runtime(wanting).sum().backward()
        assert wanting.grad is not None


def test_autocast_runs_as_the_model_would() -> None:
    model, x = two_layers(), torch.randn(4, 256)
    with gearshift.adapt(model, x) as runtime:
        runtime.swap(whole(runtime.program.graph, rewrite=ORT))
        with torch.autocast("cpu", dtype=torch.bfloat16):
            assert runtime(x).dtype == model(x).dtype == torch.bfloat16


@pytest.mark.parametrize("change", ["append", "pop"])
def test_a_module_added_or_taken_away_at_the_end_is_noticed(change: str) -> None:
    model, x = two_layers(), torch.randn(4, 256)
    with gearshift.adapt(model, x) as runtime:
        runtime.swap(whole(runtime.program.graph, rewrite=ORT))
        if change == "append":
            model.append(nn.Linear(256, 3))
        else:
            model.pop(-1)
        assert torch.equal(runtime(x), model(x))


def test_a_swap_stands_though_the_weights_changed_before() -> None:
    model, x = two_layers(), torch.randn(4, 256)
    with gearshift.adapt(model, x) as runtime, torch.no_grad():
        runtime.swap(whole(runtime.program.graph, rewrite=ORT))
        model[0].weight.mul_(2)
        runtime(x)
        chosen = whole(runtime.program.graph, rewrite=Rewrite(backend="openvino", threads=1))
        runtime.swap(chosen)
        assert runtime.settle(60)
        assert runtime.plan == chosen
        torch.testing.assert_close(runtime(x), model(x), rtol=1e-4, atol=1e-4)


def test_frozen_weights_are_not_looked_at_and_a_broken_promise_is_found_by_the_audit() -> None:
    model, x = two_layers(), torch.randn(4, 256)
    with gearshift.adapt(model, x, policy="keep", frozen=True) as runtime, torch.no_grad():
        runtime.swap(whole(runtime.program.graph, rewrite=ORT))
        before = runtime(x)
        assert runtime.settle(60)
        model[0].weight.mul_(2)
        assert torch.equal(runtime(x), before)
        deadline_s = monotonic() + 30
        while runtime.running != "eager" and monotonic() < deadline_s:
            runtime(x)
            runtime.settle(60)
        assert torch.equal(runtime(x), model(x))


def test_a_frozen_model_that_trains_now_is_not_called_to_make_plans_ready() -> None:
    model, x = two_layers(), torch.randn(4, 256)
    with gearshift.adapt(model, x, policy="keep", frozen=True) as runtime:
        model.train()
        with pytest.raises(PlanError, match="training mode"):
            runtime.swap(whole(runtime.program.graph, rewrite=ORT))


def test_when_a_plan_is_caught_wrong_what_was_built_beside_it_goes_too() -> None:
    """Weights changed behind torch's back are old in all of them."""
    model, x = two_layers(), torch.randn(4, 256)
    with gearshift.adapt(model, x, policy="keep") as runtime, torch.no_grad():
        graph = runtime.program.graph
        other = whole(graph, rewrite=Rewrite(backend="openvino", threads=1))
        runtime.swap(whole(graph, rewrite=ORT))
        runtime.release()
        runtime._changes.stand_by(other, "for later")
        assert other in runtime._changes.ready()
        runtime._mishaps.caught(runtime.plan, VerifyError("off by one"))
        assert other not in runtime._changes.ready()
        assert torch.equal(runtime(x), model(x))


def test_a_plan_for_a_model_of_which_nothing_was_captured_is_refused() -> None:
    model = two_layers().train()
    with pytest.warns(UserWarning, match="training mode"):
        runtime = gearshift.adapt(model, torch.randn(4, 256))
    with runtime, pytest.raises(PlanError, match="training mode"):
        runtime.swap(whole(runtime.program.graph, rewrite=ORT))


def test_methods_that_return_the_model_return_the_runtime() -> None:
    with gearshift.adapt(two_layers(), torch.randn(4, 256)) as runtime:
        assert runtime.eval() is runtime


@pytest.mark.parametrize(
    "plan",
    [
        None,
        "eager",
        Plan(regions=[]),  # type: ignore[arg-type]
        Plan(regions=(None,)),  # type: ignore[arg-type]
        Plan(regions=(Region(ops=(1,)),)),  # type: ignore[arg-type]
        Plan(regions=(Region(ops=("linear",), rewrite=None),)),  # type: ignore[arg-type]
        Plan(regions=(Region(ops=("linear",), engine=0),)),  # type: ignore[arg-type]
        Plan(regions=(Region(ops=("linear",), rewrite=Rewrite(threads="2")),)),  # type: ignore[arg-type]
    ],
)
def test_what_is_no_plan_is_refused_by_name(plan: Any) -> None:
    with gearshift.adapt(nn.Linear(4, 4).eval(), torch.randn(1, 4)) as runtime:
        before = runtime.plan
        with pytest.raises(PlanError, match="not legal"):
            runtime.swap(plan)
        assert runtime.plan == before


def test_what_is_no_engine_is_refused_by_name() -> None:
    with pytest.raises(UsageError, match="not 3"):
        gearshift.adapt(nn.Linear(4, 4).eval(), torch.randn(1, 4), engines=[3])  # type: ignore[list-item]


def wait_until(condition: Any, limit_s: float = 30) -> None:
    deadline_s = monotonic() + limit_s
    while not condition():
        assert monotonic() < deadline_s
        sleep(0.02)


def test_a_plan_comes_back_after_training_however_long_it_took() -> None:
    model, x = two_layers(), torch.randn(4, 256)
    with gearshift.adapt(model, x) as runtime, torch.no_grad():
        plan = whole(runtime.program.graph, rewrite=ORT)
        runtime.swap(plan)
        model[0].weight.mul_(2)
        runtime(x)  # notices
        model.train()
        assert runtime.settle(30), "what waits for the end of training holds nobody up"
        for _ in range(3):
            model[0].weight.mul_(1.1)
            torch.testing.assert_close(runtime(x), model(x))
        assert runtime.plan != plan
        model.eval()
        wait_until(lambda: runtime.plan == plan)
        torch.testing.assert_close(runtime(x), model(x))


def test_a_module_put_in_anothers_place_leaves_the_model_itself() -> None:
    model, x = two_layers(), torch.randn(4, 256)
    with gearshift.adapt(model, x) as runtime, torch.no_grad():
        runtime.swap(whole(runtime.program.graph, rewrite=ORT))
        model[0] = nn.Sequential(nn.Linear(256, 256), nn.Tanh()).eval()
        torch.testing.assert_close(runtime(x), model(x))
        assert runtime.settle(30)
        torch.testing.assert_close(runtime(x), model(x))
        assert "another's place" in runtime.explain()


def test_another_forward_is_noticed() -> None:
    model, x = two_layers(), torch.randn(4, 256)
    with gearshift.adapt(model, x) as runtime, torch.no_grad():
        runtime.swap(whole(runtime.program.graph, rewrite=ORT))
        model[1].forward = torch.sigmoid
        torch.testing.assert_close(runtime(x), model(x))


def test_a_one_number_weight_exchanged_for_its_equal_is_noticed() -> None:
    class Scaled(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.scale = nn.Parameter(torch.tensor(2.0))

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return x * self.scale + 1

    model, x = Scaled().eval(), torch.randn(4)
    with gearshift.adapt(model, x) as runtime, torch.no_grad():
        runtime.swap(whole(runtime.program.graph, rewrite=ORT))
        model.scale = nn.Parameter(torch.tensor(2.0))
        runtime(x)
        model.scale.fill_(5.0)
        torch.testing.assert_close(runtime(x), model(x))


def test_a_forked_child_answers_by_the_model_itself() -> None:
    model, x = nn.Linear(4, 4).eval(), torch.randn(1, 4)
    with gearshift.adapt(model, x) as runtime, torch.no_grad():
        runtime.swap(whole(runtime.program.graph, rewrite=ORT, engine="cpu:0"))
        expected = model(x)
        child = os.fork()
        if child == 0:
            good = torch.equal(runtime(x), expected)
            runtime.close()
            os._exit(0 if good else 1)
        _, status = os.waitpid(child, 0)
        assert status == 0
        torch.testing.assert_close(runtime(x), expected)


def test_a_runtime_nobody_holds_ends_its_threads() -> None:
    before = set(threading.enumerate())
    runtime = gearshift.adapt(two_layers(), torch.randn(4, 256))
    runtime.swap(whole(runtime.program.graph, rewrite=ORT, engine="cpu:0"))
    runtime.swap(whole(runtime.program.graph))
    assert runtime.settle(30)
    seen = weakref.ref(runtime)
    threads = {t for t in threading.enumerate() if t.name.startswith("gearshift")} - before
    assert threads
    del runtime
    gc.collect()
    assert seen() is None
    wait_until(lambda: not any(t.is_alive() for t in threads))


BUSY_AT_THE_END = """
import threading, torch, gearshift
from gearshift.plan import Rewrite
from gearshift.plan.plan import whole

model = torch.nn.Sequential(*(torch.nn.Linear(512, 512) for _ in range(8))).eval()
runtime = gearshift.adapt(model, torch.randn(2, 512), policy="keep")
rewrite = Rewrite(backend="openvino", threads=1)
plan, begun = whole(runtime.program.graph, rewrite=rewrite), threading.Event()

def work():
    for _ in range(3):
        runtime.prepare(plan)
        begun.set()

runtime._background.submit(work)
begun.wait(60)
"""


def test_a_process_that_ends_while_something_is_built_ends_well() -> None:
    ended = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", BUSY_AT_THE_END],
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert (ended.returncode, ended.stderr) == (0, "")
