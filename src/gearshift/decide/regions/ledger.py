"""What pieces of a model took by themselves, and regions in their plans.

Must not know what is made of it. Equal pieces share what was measured of them: they go by identity.
"""

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from gearshift.ir.measurement import Measurement, is_sample
from gearshift.ir.snapshot import Sample, Situation

WEIGHT = 0.2
"""Of the newest reading in what is known."""
Key = tuple[str, str, str]
"""Signature, identity and setting."""


@dataclass(slots=True)
class Ledger:
    alone_s: dict[Key, float] = field(default_factory=dict)
    """What a piece takes as a region by itself."""
    asked: set[Key] = field(default_factory=set)
    """What was asked for, whether or not anything came of it."""
    in_plan_s: dict[tuple[Situation, str], dict[str, float]] = field(
        default_factory=lambda: defaultdict(dict)
    )
    """By situation and plan: what each region takes in a call."""

    def add(self, key: Key, seconds: float) -> None:
        if is_sample(seconds):
            self.alone_s[key] = seconds

    def measured(self, signature: str, rows: Iterable[Measurement]) -> None:
        for row in rows:
            self.add((signature, row.region, row.rewrite), row.latency_s)

    def served(self, samples: Iterable[Sample]) -> None:
        for sample in samples:
            known = self.in_plan_s[sample.situation, sample.plan]
            for name, seconds in sample.region_s.items():
                if is_sample(seconds):
                    before_s = known.get(name, seconds)
                    known[name] = before_s + WEIGHT * (seconds - before_s)

    def by_setting(
        self, signature: str, identity: str, settings: Mapping[str, str]
    ) -> dict[str, float]:
        """For each name whose setting was measured, what it takes."""
        found = {n: self.alone_s.get((signature, identity, text)) for n, text in settings.items()}
        return {name: seconds for name, seconds in found.items() if seconds is not None}
