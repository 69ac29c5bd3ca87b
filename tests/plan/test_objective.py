"""An objective that makes no sense is refused where it is written, with the value that is wrong.
Knows nothing else.
"""

import math
from typing import Any

import pytest

from gearshift.errors import UsageError
from gearshift.plan import Objective

WEIGHTS = ("latency", "throughput", "energy", "link_bytes")


def test_by_default_only_latency_counts_and_nothing_is_limited() -> None:
    plain = Objective()
    assert [getattr(plain, name) for name in WEIGHTS] == [1.0, 0.0, 0.0, 0.0]
    assert plain.memory_limit is None


def test_weights_and_limits_are_kept_as_given() -> None:
    mixed = Objective(latency=0.7, energy=0.3, memory_limit=10**9)
    assert (mixed.latency, mixed.energy, mixed.memory_limit) == (0.7, 0.3, 10**9)


@pytest.mark.parametrize("name", WEIGHTS)
@pytest.mark.parametrize("weight", [-0.1, math.nan, math.inf, "0.5", None])
def test_a_weight_is_a_number_of_at_least_0(name: str, weight: Any) -> None:
    with pytest.raises(UsageError, match=rf"{name}={weight!r}.*at least 0"):
        Objective(**{name: weight})


def test_some_weight_must_be_above_0() -> None:
    with pytest.raises(UsageError, match="at least one weight"):
        Objective(latency=0.0)
    assert Objective(latency=0, energy=1).energy == 1


@pytest.mark.parametrize("limit", [0, -1])
def test_a_memory_limit_is_above_0(limit: int) -> None:
    with pytest.raises(UsageError, match=rf"memory_limit={limit}.*above 0"):
        Objective(memory_limit=limit)


@pytest.mark.parametrize("limit", ["1GB", math.nan])
def test_a_memory_limit_is_a_number_of_bytes(limit: Any) -> None:
    with pytest.raises(UsageError, match=f"memory_limit={limit!r}"):
        Objective(memory_limit=limit)
