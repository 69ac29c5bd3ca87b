"""The engines of a runtime: opened when first needed, quarantined when they fail.

Must not know what runs on them.
"""

import threading
from collections.abc import Sequence

from gearshift.act.engines import Engine, TeamEngine, discover, open_engine, parse_engine
from gearshift.errors import EngineError, UsageError
from gearshift.ir.topology import CALLER, EngineSpec, Topology, members


class EnginePool:
    def __init__(self, topology: Topology) -> None:
        self.topology = topology
        self.quarantined: dict[str, str] = {}
        """Engine -> why."""
        self._open: dict[str, Engine] = {}
        self._lock = threading.Lock()

    @property
    def usable(self) -> tuple[str, ...]:
        return tuple(name for name in self.topology.names if name not in self.quarantined)

    def get(self, name: str) -> Engine:
        for known in (name, *members(name)):
            if known in self.quarantined:
                raise EngineError(f"engine {known} is quarantined: {self.quarantined[known]}")
        with self._lock:
            return self._get(name)

    def _get(self, name: str) -> Engine:
        if name not in self._open:
            parts = members(name)
            if len(parts) > 1:
                self._open[name] = TeamEngine([self._get(part) for part in parts])
                return self._open[name]
            spec = next((s for s in self.topology.engines if s.name == name), None)
            if spec is None:
                raise UsageError(f"no engine {name!r}; there are {', '.join(self.usable)}")
            self._open[name] = open_engine(spec)
        return self._open[name]

    def threads(self) -> dict[str, int]:
        """Engines with a thread of their own, by name, and the system's number of it."""
        with self._lock:
            found = {name: getattr(e, "thread_id", None) for name, e in self._open.items()}
        return {name: number for name, number in found.items() if number is not None}

    def add(self, engine: Engine) -> None:
        """An engine of the user's own."""
        engines = (*self.topology.engines, engine.spec)
        self.topology = Topology(engines=engines, links=self.topology.links)
        self._open[engine.spec.name] = engine

    def quarantine(self, name: str, reason: str) -> None:
        assert name != CALLER, "the caller's own thread cannot be taken away"
        self.quarantined[name] = reason

    def close(self) -> None:
        with self._lock:
            for engine in self._open.values():
                engine.close()
            self._open.clear()


def open_pool(engines: str | Sequence[str | Engine] | EnginePool) -> EnginePool:
    if isinstance(engines, EnginePool):
        return engines
    if engines == "auto":
        return EnginePool(discover())
    given = [engines] if isinstance(engines, str) else list(engines)
    names = [CALLER, *(e for e in given if isinstance(e, str) and e != CALLER)]
    specs: tuple[EngineSpec, ...] = tuple(parse_engine(name) for name in names)
    pool = EnginePool(Topology(engines=specs))
    for engine in given:
        if not isinstance(engine, str):
            if not isinstance(getattr(engine, "spec", None), EngineSpec):
                raise UsageError(f"engines are names or Engine objects, not {engine!r:.100}")
            pool.add(engine)
    return pool
