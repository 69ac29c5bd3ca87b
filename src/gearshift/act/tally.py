"""Counts and times of calls, one tally per calling thread, so that none needs a lock.

Must not know what is counted for.
"""

import threading
from dataclasses import dataclass, fields


@dataclass(slots=True)
class Tally:
    calls: int = 0
    total_s: float = 0.0
    inside_s: float = 0.0
    """In stand-ins for fragments; only for a model not captured whole."""
    outside_s: float = 0.0
    """In the model's own Python: calls that do not fit the capture, and code between fragments."""


class Tallies:
    def __init__(self) -> None:
        self._local = threading.local()
        self._all: dict[int, Tally] = {}

    def mine(self) -> Tally:
        try:
            tally: Tally = self._local.tally
        except AttributeError:
            # the number of a thread that has ended is given to another, which goes on counting
            tally = self._local.tally = self._all.setdefault(threading.get_ident(), Tally())
        return tally

    def sum(self) -> Tally:
        names = [field.name for field in fields(Tally)]
        tallies = list(self._all.values())
        return Tally(**{name: sum(getattr(t, name) for t in tallies) for name in names})
