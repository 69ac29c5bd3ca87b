"""Engines and the links between them, as data.

Must not know how an engine is started or driven; that is `act/engines/`.
"""

from collections.abc import Sequence
from dataclasses import dataclass

CALLER = "caller"
TOGETHER = "+"


def team(names: Sequence[str]) -> str:
    """What several engines that share a region are called together."""
    return TOGETHER.join(names)


def members(name: str) -> tuple[str, ...]:
    """Of a team, its engines; of another engine, itself."""
    return tuple(name.split(TOGETHER))


def is_one_core(name: str) -> bool:
    """Of an engine."""
    return name.startswith("cpu:") and name[4:].isdigit()


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineSpec:
    """`caller` is the thread that calls the model; others are named cpu:0, cpu:0-1, cuda:0; a team
    of several, cpu:0+cpu:1."""

    name: str
    kind: str
    cores: tuple[int, ...] = ()
    memory_bytes: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Link:
    source: str
    target: str
    bandwidth_bytes_s: float | None = None
    latency_s: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Topology:
    engines: tuple[EngineSpec, ...]
    links: tuple[Link, ...] = ()

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(engine.name for engine in self.engines)
