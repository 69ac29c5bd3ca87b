"""A checker that anyone can run on counters of their own.

Must not know which counters they are.
"""

import math

from gearshift.ir.measurement import Source
from gearshift.observe.hal.counters import Counters, Description, Readings, Unit

INTERVALS_S = (0.0, 0.05, 0.0, 1.0, 3600.0)
"""Reads in quick succession, at once, and after a long pause: none may upset a source."""


def check_counters(counters: Counters, *, now_s: float = 0.0) -> None:
    """Raises AssertionError, saying which duty of the protocol is not met. Closes the counters.

    `now_s` is the time of the first read, for counters that were read before.
    """
    descriptions = _check_descriptions(counters)
    for interval_s in INTERVALS_S:
        now_s += interval_s
        _check_readings(counters.read(now_s), descriptions)
    counters.close()
    counters.close()
    after = counters.read(now_s + 1.0)
    assert all(metric.value is None for metric in after.values()), (
        "closed counters have nothing to tell"
    )


def _check_descriptions(counters: Counters) -> dict[str, Description]:
    descriptions = {description.name: description for description in counters.describe()}
    assert descriptions, "counters describe at least one metric, even if it is unavailable"
    assert len(descriptions) == len(counters.describe()), "each name is described once"
    for name, description in descriptions.items():
        assert name, "a metric has a name"
        assert description.unit in set(Unit), f"{name}: {description.unit!r} is no Unit"
        assert description.origin, f"{name}: says where it comes from, or why it cannot be had"
    return descriptions


def _check_readings(readings: Readings, descriptions: dict[str, Description]) -> None:
    assert readings.keys() == descriptions.keys(), "what is described is read, and nothing else"
    for name, metric in readings.items():
        description = descriptions[name]
        assert metric.source in {description.source, Source.UNAVAILABLE}, (
            f"{name}: described as {description.source}, read as {metric.source}"
        )
        if metric.value is not None:
            assert math.isfinite(metric.value), f"{name}: {metric.value} is no number"
            assert metric.value >= 0, f"{name}: {metric.value} is below 0"
            most = 1.0 if description.unit is Unit.SHARE else math.inf
            assert metric.value <= most, f"{name}: a share of {metric.value} is above 1"
