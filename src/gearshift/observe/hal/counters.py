"""The seam to the hardware: what every source of metrics offers, and how a metric is described.

Must not know any source. Clocks are monotonic and handed in; wall-clock time plays no part here.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum
from typing import Protocol

from gearshift.ir.measurement import Metric, Source

Readings = dict[str, Metric]
"""Metrics by name."""

UNAVAILABLE = Metric(value=None, source=Source.UNAVAILABLE)
# Looking a member up in its enum takes as long as making the metric.
_MEASURED, _MODELLED = Source.MEASURED, Source.MODELLED


class Unit(StrEnum):
    SHARE = "share"
    CORES = "cores"
    HZ = "Hz"
    BYTES_S = "bytes/s"
    PER_S = "1/s"
    JOULES = "J"
    WATTS = "W"


@dataclass(frozen=True, slots=True, kw_only=True)
class Description:
    """What a name stands for: `origin` says where it comes from, or why it cannot be had."""

    name: str
    unit: Unit
    source: Source
    origin: str


class Counters(Protocol):
    def describe(self) -> tuple[Description, ...]:
        """Every name that `read` gives, as things stand now."""

    def read(self, now_s: float) -> Readings:
        """Over the time since the previous read; the first one may have nothing to tell yet.

        Each metric is of the source described, or unavailable. Never raises.
        """

    def close(self) -> None:
        """From now on everything is unavailable. Safe to call twice."""


def measured(value: float | None) -> Metric:
    return UNAVAILABLE if value is None else Metric(value=value, source=_MEASURED)


def modelled(value: float | None) -> Metric:
    return UNAVAILABLE if value is None else Metric(value=value, source=_MODELLED)


def nothing(names: Iterable[str]) -> Readings:
    return dict.fromkeys(names, UNAVAILABLE)


def share(part: float, whole: float) -> float | None:
    """Between 0 and 1; None where there is no whole to take a part of."""
    return min(1.0, max(0.0, part / whole)) if whole > 0 else None
