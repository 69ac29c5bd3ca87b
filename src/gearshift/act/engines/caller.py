"""The thread that calls the model. Its affinity and modes are the caller's own: left alone, but for
torch's number of threads, which is lower in a region while others want cores.

Must not know anything else; the executor runs such regions without even a job.
"""

from collections.abc import Callable, Sequence
from typing import Any

import torch

from gearshift.act.engines.protocol import Done, Job
from gearshift.ir.topology import EngineSpec


class CallerEngine:
    def __init__(self, spec: EngineSpec) -> None:
        self.spec = spec
        self.device = torch.device("cpu")

    def start(self, work: Callable[..., Any], inputs: Sequence[Any]) -> Job:
        return Done(work, inputs, self.spec.name)

    def call(self, work: Callable[[], Any]) -> Any:
        return work()

    def close(self) -> None:
        """Nothing is held."""
