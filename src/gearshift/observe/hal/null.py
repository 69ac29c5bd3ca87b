"""Counters without hardware: they give what they are told to. For tests anywhere.

Must not look at the machine.
"""

from collections.abc import Mapping

from gearshift.ir.measurement import Metric
from gearshift.observe.hal.counters import Description, Readings, Unit, nothing


class NullCounters:
    def __init__(self, metrics: Mapping[str, Metric], *, unit: Unit = Unit.SHARE) -> None:
        self._metrics, self._unit, self._closed = dict(metrics), unit, False

    def feed(self, **metrics: Metric) -> None:
        """What the next reads give."""
        self._metrics.update(metrics)

    def describe(self) -> tuple[Description, ...]:
        metrics = self.read(0.0)
        return tuple(
            Description(name=name, unit=self._unit, source=metric.source, origin="fed by hand")
            for name, metric in metrics.items()
        )

    def read(self, now_s: float) -> Readings:
        return nothing(self._metrics) if self._closed else dict(self._metrics)

    def close(self) -> None:
        self._closed = True
