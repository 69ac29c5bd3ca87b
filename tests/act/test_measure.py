"""Regions measured by themselves, those that cannot be among them."""

from itertools import pairwise
from typing import Any

import pytest
import torch
from torch import nn

import gearshift
from gearshift.act.backends import BACKENDS, Executable, NullBackend, Order
from gearshift.act.measure import measure, take_turns
from gearshift.plan import Region, Rewrite


class Failing(NullBackend):
    name = "failing"

    def build(self, order: Order) -> Executable:
        built = super().build(order)

        def run(*inputs: Any) -> Any:
            raise RuntimeError("not today")

        return Executable(
            run=run,
            inputs=built.inputs,
            sizes=built.sizes,
            outputs=built.outputs,
            held_bytes=0,
        )


def test_what_fails_or_is_wrong_is_left_out_and_the_others_are_told(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    torch.manual_seed(0)
    model, x = nn.Sequential(nn.Linear(8, 8), nn.Tanh(), nn.Linear(8, 8)).eval(), torch.randn(4, 8)
    monkeypatch.setitem(BACKENDS, Failing.name, Failing())
    monkeypatch.setitem(BACKENDS, NullBackend.name, NullBackend())
    with gearshift.adapt(model, x, policy="keep") as runtime:
        (fragment,) = runtime.program.fragments
        ops = tuple(op.name for op in fragment.graph.ops)
        names = (Failing.name, NullBackend.name, "eager", "onnxruntime")
        regions = [Region(ops=ops, rewrite=Rewrite(backend=name)) for name in names]
        rows = list(
            measure(
                fragment,
                regions,
                runtime.open_engine,
                runtime.tolerance,
                seconds=0.01,
                num_threads=1,
            )
        )
    assert [row.rewrite for row in rows] == ["eager", "onnxruntime"]
    assert all(row.latency_s > 0 and row.ops == ops for row in rows)


def test_nobody_always_follows_the_same_other() -> None:
    seen: list[str] = []
    calls = {name: lambda name=name: seen.append(name) for name in "abc"}
    latencies = take_turns(calls, 0.01)
    assert len({len(times) for times in latencies.values()}) == 1
    before_b = {one for one, other in pairwise(seen[3:]) if other == "b"}
    assert {"a", "c"} <= before_b
