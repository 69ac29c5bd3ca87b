"""What this machine has: what can be measured, which engines and backends work, what is missing.

A recipe: asks every part, and tries each backend on a small model. Changes nothing.
"""

import re
import shutil
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from importlib import metadata
from importlib.util import find_spec
from time import perf_counter
from typing import Any

import torch
from torch import nn

from gearshift.act.backends import BACKENDS
from gearshift.act.engines import discover
from gearshift.errors import GearshiftError
from gearshift.ir.measurement import Source
from gearshift.ir.topology import EngineSpec
from gearshift.observe.hal import open_hal
from gearshift.observe.hal.counters import Description
from gearshift.plan import Rewrite
from gearshift.plan.plan import whole
from gearshift.runtime import adapt
from gearshift.tell import machine

LIBRARIES = {
    "onnxruntime": ("onnx", ("onnx", "onnxscript", "onnxruntime")),
    "openvino": ("openvino", ("openvino", "onnx", "onnxscript")),
}
"""For each backend that needs one, the extra and the modules in it."""
NEED = re.compile(r"""(?P<package>[\w.-]+).*;\s*extra\s*==\s*["'](?P<extra>[\w-]+)["']""")
"""What the installed package says it needs for an extra."""
REMEDIES = {
    "perf_event_paranoid": "sudo sysctl kernel.perf_event_paranoid=1",
    "powercap: Permission denied": "sudo chmod a+r /sys/class/powercap/*/energy_uj",
}
"""By what a counter that cannot be measured says."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BackendState:
    name: str
    works: bool
    told: str
    """How a small model did on it, or why there is none."""
    remedy: str = ""
    """The exact command that would help."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Extra:
    name: str
    missing: tuple[str, ...]
    """Packages of it that are not here."""

    @property
    def remedy(self) -> str:
        return f'pip install "gearshift[{self.name}]"' if self.missing else ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Diagnosis:
    machine: dict[str, Any]
    engines: tuple[EngineSpec, ...]
    backends: tuple[BackendState, ...]
    extras: tuple[Extra, ...]
    counters: tuple[Description, ...]
    remedies: tuple[str, ...]

    @property
    def sound(self) -> bool:
        """Nothing that is installed fails."""
        return all(backend.works or backend.remedy for backend in self.backends)


def diagnose(say: Callable[[str], None]) -> Diagnosis:
    say("reading counters")
    hal = open_hal()
    try:
        hal.read()
        counters = hal.describe()
    finally:
        hal.close()
    backends = []
    for name in BACKENDS:
        say(f"trying {name}")
        backends.append(_try(name))
    extras = tuple(find_extras())
    wanted = [backend.remedy for backend in backends] + [extra.remedy for extra in extras]
    return Diagnosis(
        machine=machine(),
        engines=discover().engines,
        backends=tuple(backends),
        extras=extras,
        counters=counters,
        remedies=tuple(dict.fromkeys(filter(None, (*wanted, *_remedies(counters))))),
    )


def find_extras() -> Iterator[Extra]:
    """As the installed package tells them, but for those of its developers and of other extras
    alone."""
    packages: dict[str, list[str]] = {}
    for line in metadata.requires("gearshift") or ():
        found = NEED.match(line)
        if found is not None and found["package"] != "gearshift" and found["extra"] != "dev":
            packages.setdefault(found["extra"], []).append(found["package"])
    for extra, wanted in packages.items():
        yield Extra(name=extra, missing=tuple(p for p in wanted if not _is_here(p)))


def _is_here(package: str) -> bool:
    try:
        metadata.version(package)
    except metadata.PackageNotFoundError:
        return False
    return True


def small_model() -> tuple[nn.Module, tuple[torch.Tensor, ...]]:
    model = nn.Sequential(nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 8)).eval()
    return model, (torch.randn(4, 64),)


def _try(name: str) -> BackendState:
    """Captures, builds, verifies and calls."""
    extra, modules = LIBRARIES.get(name, ("", ()))
    absent = [module for module in modules if find_spec(module) is None]
    if absent:
        remedy = f'pip install "gearshift[{extra}]"'
        return BackendState(name=name, works=False, told=f"{absent[0]} is missing", remedy=remedy)
    if name == "inductor" and shutil.which("g++") is None:
        told, remedy = "no C++ compiler", "sudo apt-get install g++"
        return BackendState(name=name, works=False, told=told, remedy=remedy)
    try:
        return BackendState(name=name, works=True, told=_run(name))
    except GearshiftError as error:
        return BackendState(name=name, works=False, told=" ".join(str(error).split()))


def _run(name: str) -> str:
    model, example = small_model()
    with adapt(model, example, policy="keep") as runtime:
        start_s = perf_counter()
        plan = whole(runtime.program.graph, rewrite=Rewrite(backend=name))
        runtime.swap(plan, "tried")
        built_s = perf_counter() - start_s
        with torch.no_grad():
            difference = (runtime(*example) - model(*example)).abs().max().item()
        return f"built in {built_s:.1f} s, largest difference {difference:.0e}"


def _remedies(counters: tuple[Description, ...]) -> Iterator[str]:
    """For what could be measured, but is not let."""
    refused = [c.origin for c in counters if c.source is not Source.MEASURED]
    for words, remedy in REMEDIES.items():
        if any(all(word in origin for word in words.split(": ")) for origin in refused):
            yield remedy
