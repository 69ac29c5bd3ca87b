"""When live calls are checked."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn

from gearshift.act.audit import EARLY_INTERVAL_S, Audit
from gearshift.act.verify import Tolerance
from gearshift.capture.load import capture
from gearshift.errors import VerifyError
from gearshift.plan import Plan, Rewrite
from gearshift.plan.plan import whole


class Later:
    """Work waits until it is asked for."""

    def __init__(self) -> None:
        self.waiting: list[Callable[[], None]] = []

    def submit(self, work: Callable[[], None]) -> None:
        self.waiting.append(work)

    def go_on(self) -> None:
        while self.waiting:
            self.waiting.pop(0)()


class Calls:
    """Of a model on plans that are right or wrong, at times that are told."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.model, self.x = nn.Linear(4, 4).eval(), torch.randn(2, 4)
        (self.fragment,) = capture(self.model, (self.x,), {}).fragments
        graph = self.fragment.graph
        self.plans = [whole(graph, rewrite=Rewrite(backend=b)) for b in ("onnxruntime", "openvino")]
        self.later, self.caught, self.now_s = Later(), [], 100.0
        monkeypatch.setattr("gearshift.act.audit.perf_counter", lambda: self.now_s)
        self.audit = Audit(self.later, Tolerance(), self._catch)  # type: ignore[arg-type]

    def _catch(self, plan: Plan, difference: VerifyError) -> None:
        self.caught.append(plan)

    def call(self, plan: Plan, off: float = 0.0) -> None:
        """As the hot path does."""
        if self.now_s >= self.audit.due_s:
            with torch.no_grad():
                result: Any = self.model(self.x) + off
            self.audit.take(plan, self.fragment, (self.x,), {}, result)

    def known(self, plan: Plan) -> None:
        """Until it is not new any more."""
        self.audit.watch(True)
        self.call(plan)
        self.later.go_on()
        self.now_s += EARLY_INTERVAL_S


def test_a_new_plan_is_looked_at_soon_though_another_ones_check_is_under_way(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    calls = Calls(monkeypatch)
    old, new = calls.plans
    calls.known(old)
    calls.now_s += 60.0
    calls.call(old)
    assert calls.later.waiting, "that one is being checked,"
    calls.audit.watch(True)
    calls.later.go_on()
    calls.now_s += EARLY_INTERVAL_S
    calls.call(new, off=1.0)
    calls.later.go_on()
    assert calls.caught == [new]


def test_once_the_model_itself_serves_nothing_is_due(monkeypatch: pytest.MonkeyPatch) -> None:
    calls = Calls(monkeypatch)
    calls.audit.watch(True)
    calls.call(calls.plans[0])
    calls.audit.watch(False)
    calls.later.go_on()
    assert calls.audit.due_s == float("inf")
