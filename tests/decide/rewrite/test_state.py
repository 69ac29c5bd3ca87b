"""What is seen of a region, as numbers: complete, bounded, and what may be chosen from it."""

from dataclasses import replace
from math import inf, log

import numpy as np
import pytest

from gearshift.decide.rewrite.actions import ENTRIES, INDEX
from gearshift.decide.rewrite.state import FAR, INPUTS, features, foreseen, mask
from gearshift.decide.rewrite.view import RewriteView
from gearshift.plan.library import LIBRARY

VIEW = RewriteView(
    kind="conv",
    num_ops=4,
    flops=1e9,
    moved_bytes=1e7,
    set_bytes=5e6,
    read_bytes=1e6,
    made_bytes=2e6,
    compute_s=1e-3,
    memory_s=5e-4,
    in_force="eager",
    legal=frozenset({"eager", "onnxruntime", "openvino", "tiles"}),
    seconds={"eager": 4e-3, "onnxruntime": 1e-3},
)


def seen(view: RewriteView) -> dict[str, float]:
    return dict(zip(INPUTS, map(float, features(view)), strict=True))


def chosen(view: RewriteView) -> set[str]:
    return {name for name, may in zip(ENTRIES, mask(view), strict=True) if may}


def test_all_that_the_choice_depends_on_is_in_the_numbers() -> None:
    numbers = seen(VIEW)
    assert len(set(INPUTS)) == len(INPUTS)
    assert numbers["kind conv"] == 1
    assert numbers["kind linear"] == 0
    assert numbers["in force eager"] == 1
    assert numbers["of_roof"] == pytest.approx(0.25)
    assert numbers["of_bandwidth"] == pytest.approx(0.125)
    assert numbers["compute_share"] == pytest.approx(2 / 3)
    assert numbers["measured onnxruntime"] == 1
    assert numbers["time onnxruntime"] == pytest.approx(-2)
    assert numbers["measured openvino"] == numbers["time openvino"] == 0


@pytest.mark.parametrize(
    "odd",
    [
        {"flops": 0.0, "moved_bytes": 0.0, "set_bytes": 0.0, "num_ops": 0},
        {"compute_s": 0.0, "memory_s": 0.0},
        {"flops": 1e30, "compute_s": 1e3},
        {"kind": "of nobody's making"},
        {"seconds": {"eager": 1e-6, "tiles": 10.0}},
        {"seconds": {"eager": 1e-3, "tiles": inf}},
        {"seconds": {"mine x2": 1e-3}, "in_force": "mine x2"},
    ],
    ids=lambda odd: " ".join(odd),
)
def test_numbers_stay_within_bounds(odd: dict[str, object]) -> None:
    numbers = features(replace(VIEW, **odd))
    assert numbers.shape == (len(INPUTS),)
    assert numbers.dtype == np.float32
    assert np.abs(numbers).max() <= FAR


def test_what_was_measured_is_foreseen_and_nothing_else_is() -> None:
    (worth,) = foreseen(features(VIEW)[None])
    assert worth[INDEX["onnxruntime"]] == 0
    assert worth[INDEX["eager"]] == pytest.approx(-log(4), abs=1e-5)
    assert worth[INDEX["openvino"]] == 0


def test_what_is_illegal_or_known_to_be_slower_is_not_chosen() -> None:
    assert chosen(VIEW) == {"onnxruntime", "openvino", "tiles"}
    near = replace(VIEW, seconds={"eager": 1.03e-3, "onnxruntime": 1e-3})
    assert chosen(near) == {"eager", "onnxruntime", "openvino", "tiles"}


def test_entries_are_those_of_the_library() -> None:
    assert tuple(entry.name for entry in LIBRARY) == ENTRIES
    assert [ENTRIES[INDEX[name]] for name in ENTRIES] == list(ENTRIES)
