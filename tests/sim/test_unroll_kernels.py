"""What was recorded of kernels: read as written, refused where it makes no sense, interpolated."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from gearshift.errors import UsageError
from gearshift.sim.profiles import write_profiles
from gearshift.sim.unroll_profiles import (
    LEAST_CALL_S,
    SHIPPED,
    KernelProfile,
    Kernels,
    Pace,
    read_kernels,
)
from tests.profiles import kernel, kernels

CORNERS = [kernel("lstm", size, rows, 1) for size in (32, 128) for rows in (1, 4)]


def pace(profiles: list[KernelProfile], hidden_size: int, num_rows: int, **changes: int) -> Pace:
    sizes = {"read_size": hidden_size, "hidden_size": hidden_size, **changes}
    return Kernels.of(profiles).pace("lstm", 1, num_rows=num_rows, **sizes)


def test_what_was_measured_is_what_it_takes() -> None:
    for point in CORNERS:
        found = pace(CORNERS, point.hidden_size, point.rows)
        wanted_s = point.call_s + 10 * point.step_s
        assert found.work_s(10, point.rows) == pytest.approx(wanted_s)
        assert found.call_s(10, point.rows) == pytest.approx(point.call_s)


def test_between_sizes_times_follow_as_logarithms() -> None:
    """A step takes four times as long with twice the units: so it does half-way."""
    found = pace(CORNERS, 64, 1).work_s(1000, 1)
    wanted = kernel("lstm", 64, 1, 1)
    assert found == pytest.approx(wanted.call_s + 1000 * wanted.step_s, rel=1e-6)
    few, some, many = (pace(CORNERS, 32, 4).work_s(100, rows) for rows in (1, 2, 4))
    assert few < some < many


def test_beyond_what_was_measured_it_is_as_at_the_edge() -> None:
    assert pace(CORNERS, 32, 9).work_s(5, 9) == pace(CORNERS, 32, 4).work_s(5, 4)


def test_a_layer_that_reads_more_takes_longer_for_a_step() -> None:
    plain, wide = pace(CORNERS, 32, 1), pace(CORNERS, 32, 1, read_size=96)
    assert wide.call_s(1, 1) == plain.call_s(1, 1)
    steps = [some.work_s(100, 1) - some.call_s(100, 1) for some in (plain, wide)]
    assert steps[1] == pytest.approx(2 * steps[0])


def test_a_call_that_was_measured_to_cost_nothing_is_not_free() -> None:
    free = [replace(point, call_s=1e-9) for point in CORNERS]
    assert pace(free, 32, 1).call_s(1, 1) == pytest.approx(LEAST_CALL_S)


def test_a_size_that_was_left_out_half_way_does_not_count() -> None:
    begun = [*CORNERS, kernel("lstm", 1024, 1, 1)]
    assert pace(begun, 512, 4).work_s(9, 4) == pace(CORNERS, 512, 4).work_s(9, 4)


def test_a_kernel_that_is_not_everywhere_does_not_count() -> None:
    some = [*CORNERS, kernel("lstm", 32, 1, 1, "steady"), kernel("lstm", 32, 4, 1, "steady")]
    assert len(pace(some, 32, 1).kernels) == 1
    assert len(pace(kernels(), 32, 1).kernels) == 2


def test_too_little_is_refused() -> None:
    with pytest.raises(UsageError, match="no kernels were recorded for lstm on 1 threads"):
        pace([kernel("gru", 32, 1, 1)], 32, 1)
    with pytest.raises(UsageError, match="no kernel was recorded at all sizes"):
        Kernels.of([kernel("lstm", 32, 1, 1), kernel("lstm", 64, 4, 1)])


def test_kernels_are_read_as_they_were_written(tmp_path: Path) -> None:
    path = tmp_path / "kernels.json"
    write_profiles(path, kernels(), {"cpu": "this"})
    assert read_kernels(path) == kernels()


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"kind": "magic"}, "no kind 'magic'"),
        ({"rows": 0}, "whole numbers above 0"),
        ({"hidden_size": 1.5}, "whole numbers above 0"),
        ({"step_s": 0.0}, "takes no time"),
        ({"call_s": float("inf")}, "takes no time"),
    ],
)
def test_kernels_that_make_no_sense_are_refused(
    tmp_path: Path, change: dict[str, Any], said: str
) -> None:
    path = tmp_path / "odd.json"
    write_profiles(path, [replace(CORNERS[0], **change)], {})
    with pytest.raises(UsageError, match=rf"odd\.json' holds no profiles.*{said}"):
        read_kernels(path)


def test_kernels_that_are_shipped_can_be_trained_on() -> None:
    if not SHIPPED.exists():
        with pytest.raises(UsageError, match="gearshift train unroll --record"):
            read_kernels(SHIPPED)
        return
    found = Kernels.of(read_kernels(SHIPPED))
    assert found.grids.keys() == {(k, t) for k in ("lstm", "gru") for t in (1, 2)}
