"""An engine without hardware: runs work at once and counts it. For tests anywhere.

Must not be offered to users' plans.
"""

from collections.abc import Callable, Sequence
from typing import Any

import torch

from gearshift.act.engines.protocol import Done, Job
from gearshift.errors import EngineError
from gearshift.ir.topology import EngineSpec


class NullEngine:
    def __init__(self, spec: EngineSpec, *, fail_at: int | None = None) -> None:
        self.spec = spec
        self.device = torch.device("cpu")
        self.started = 0
        self.closed = False
        self.fail_at = fail_at

    def start(self, work: Callable[..., Any], inputs: Sequence[Any]) -> Job:
        if self.closed:
            raise EngineError(f"engine {self.spec.name} is closed", self.spec.name)
        self.started += 1
        if self.fail_at is not None and self.started >= self.fail_at:
            raise EngineError(f"engine {self.spec.name} failed at its call {self.started}")
        return Done(work, inputs, self.spec.name)

    def call(self, work: Callable[[], Any]) -> Any:
        return work()

    def close(self) -> None:
        self.closed = True
