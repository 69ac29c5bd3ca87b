"""Engines: what runs regions. One protocol, one file per kind, and the finding of what is here.

Must not know plans or backends.
"""

from collections.abc import Callable, Sequence

import torch

from gearshift.act.engines.caller import CallerEngine
from gearshift.act.engines.check import check_engine
from gearshift.act.engines.cuda import CudaEngine
from gearshift.act.engines.null import NullEngine
from gearshift.act.engines.pinned import PinnedEngine, machine_cores
from gearshift.act.engines.protocol import Engine, Job
from gearshift.act.engines.team import TeamEngine
from gearshift.errors import UsageError
from gearshift.ir.topology import CALLER, EngineSpec, Topology

__all__ = [
    "CallerEngine",
    "CudaEngine",
    "Engine",
    "Job",
    "NullEngine",
    "PinnedEngine",
    "TeamEngine",
    "check_engine",
    "discover",
    "open_engine",
    "parse_engine",
]


def discover() -> Topology:
    """The calling thread, every core, all cores together, and every CUDA device torch has."""
    cores = machine_cores()
    names = [CALLER, *(f"cpu:{core}" for core in cores)]
    if len(cores) > 1:
        names.append(f"cpu:{_core_text(cores)}")
    names += [f"cuda:{index}" for index in range(torch.cuda.device_count())]
    return Topology(engines=tuple(parse_engine(name) for name in names))


def parse_engine(name: str) -> EngineSpec:
    kind, _, rest = name.partition(":")
    if name == CALLER:
        return EngineSpec(name=name, kind=CALLER, cores=machine_cores())
    if kind == "null":
        return EngineSpec(name=name, kind=kind)
    if kind == "cpu":
        return EngineSpec(name=name, kind=kind, cores=_parse_cores(name, rest))
    if kind == "cuda" and rest.isdigit():
        if int(rest) >= torch.cuda.device_count():
            raise UsageError(
                f"engine {name!r}: torch sees {torch.cuda.device_count()} CUDA devices"
            )
        memory_bytes = torch.cuda.get_device_properties(int(rest)).total_memory
        return EngineSpec(name=name, kind=kind, memory_bytes=memory_bytes)
    raise UsageError(f"engine {name!r}: expected caller, cpu:0, cpu:0-1, cpu:0,2 or cuda:0")


def open_engine(spec: EngineSpec) -> Engine:
    kinds: dict[str, Callable[[EngineSpec], Engine]]
    kinds = {CALLER: CallerEngine, "cpu": PinnedEngine, "cuda": CudaEngine, "null": NullEngine}
    return kinds[spec.kind](spec)


def _parse_cores(name: str, text: str) -> tuple[int, ...]:
    cores: list[int] = []
    for part in text.split(","):
        first, dash, last = part.partition("-")
        if not first.isdigit() or (dash and not last.isdigit()):
            raise UsageError(f"engine {name!r}: cores are written 0, 0-1 or 0,2")
        cores += range(int(first), int(last or first) + 1)
    here = machine_cores()
    absent = [core for core in cores if core not in here]
    if absent or not cores:
        raise UsageError(f"engine {name!r}: this process may use the cores {_core_text(here)}")
    return tuple(dict.fromkeys(cores))


def _core_text(cores: Sequence[int]) -> str:
    if tuple(cores) == tuple(range(cores[0], cores[-1] + 1)) and len(cores) > 1:
        return f"{cores[0]}-{cores[-1]}"
    return ",".join(map(str, cores))
