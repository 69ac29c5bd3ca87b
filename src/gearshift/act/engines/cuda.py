"""A CUDA device torch has: regions run on a stream of their own, in a thread of their own.

Must not know what runs on it. Weights go to `device` when a region is built.
"""

from collections.abc import Callable
from typing import Any

import torch

from gearshift.act.engines.pinned import PinnedEngine, machine_cores
from gearshift.ir.topology import EngineSpec


class CudaEngine(PinnedEngine):
    def __init__(self, spec: EngineSpec) -> None:
        super().__init__(EngineSpec(name=spec.name, kind=spec.kind, cores=machine_cores()))
        self.spec = spec
        self.device = torch.device(spec.name)

    def call(self, work: Callable[[], Any]) -> Any:
        """On its stream, in line with calls: what is built there is there for them."""
        return self.start(work, ()).result()

    def _serve(self) -> None:
        stream = torch.cuda.Stream(self.device)  # type: ignore[no-untyped-call]
        with torch.cuda.device(self.device), torch.cuda.stream(stream):
            super()._serve()
