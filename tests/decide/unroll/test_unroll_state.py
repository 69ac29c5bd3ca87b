"""What is seen of a stack of recurrent layers, as numbers; and what choices earn."""

from dataclasses import replace
from math import inf, log, nan
from typing import Any

import numpy as np
import pytest

from gearshift.decide.unroll.actions import MAX_LAYERS
from gearshift.decide.unroll.reward import UnrollWeights, unroll_reward
from gearshift.decide.unroll.state import FAR, INPUTS, RESTED, features
from gearshift.decide.unroll.view import UNKNOWN, LayerView, UnrollView
from gearshift.plan.unroll import AT_ONCE, ROLLED, Steps
from tests.decide.unroll.views import measured, stack, view

SEEN = view(
    layers=(
        LayerView(
            steps=Steps(then=8, kernel="onednn"),
            calls_kept=4,
            step_s=measured(8e-5),
            held_bytes=measured(2.0**20),
            busy_share=measured(0.75),
            run_delay_share=measured(0.5),
            hit_share=measured(0.0),
        ),
        LayerView(steps=ROLLED, calls_kept=100, engine=1),
    ),
    num_engines=2,
    took_s=measured(2e-3),
    memory_limit_bytes=1 << 20,
)


def seen(of: UnrollView) -> dict[str, float]:
    return dict(zip(INPUTS, map(float, features(of)), strict=True))


def test_all_that_the_choice_depends_on_is_in_the_numbers() -> None:
    numbers = seen(SEEN)
    assert len(set(INPUTS)) == len(INPUTS)
    assert numbers["kind lstm"] == numbers["inputs uniform"] == numbers["engines"] == 1
    assert numbers["kind gru"] == numbers["inputs ragged"] == numbers["threads"] == 0
    assert numbers["layers"] == pytest.approx(2 / MAX_LAYERS)
    assert (numbers["took known"], numbers["took"]) == (1, 1)
    assert numbers["memory limited"] == 1
    assert 0 < numbers["memory"] < 1
    assert numbers["layer 0 in force by 8"] == 1, "whatever the kernel"
    assert numbers["layer 0 in force rolled"] == 0
    assert numbers["layer 0 calls_kept"] == 4 / RESTED
    assert numbers["layer 0 step_s"] == pytest.approx(1)
    assert numbers["layer 0 held_bytes"] == 0.5
    assert numbers["layer 0 busy_share"] == 0.75
    assert numbers["layer 0 run_delay_share"] == 0.5
    assert numbers["layer 1 in force rolled"] == numbers["layer 1 engine"] == 1
    assert numbers["layer 1 calls_kept"] == 1
    assert numbers["layer 2 there"] == numbers["layer 2 in force rolled"] == 0


def test_what_is_unknown_is_told_from_nothing() -> None:
    numbers = seen(SEEN)
    assert (numbers["layer 0 hit_share known"], numbers["layer 0 hit_share"]) == (1, 0)
    assert (numbers["layer 1 hit_share known"], numbers["layer 1 hit_share"]) == (0, 0)
    assert (numbers["call known"], numbers["call"]) == (0, 0)
    known = seen(replace(SEEN, call_s=measured(2e-5)))
    assert (known["call known"], known["call"]) == (1, 0)
    unknown = seen(replace(SEEN, took_s=UNKNOWN, memory_limit_bytes=None))
    assert unknown["took known"] == unknown["memory limited"] == 0


@pytest.mark.parametrize(
    "odd",
    [
        {"took_s": measured(0.0), "call_s": measured(0.0)},
        {"took_s": measured(inf), "call_s": measured(inf)},
        {"took_s": measured(nan)},
        {"num_rows": 1 << 20, "num_steps": 1 << 20},
        {"memory_limit_bytes": 1},
        {"switches_left": -3},
        {"layers": view((AT_ONCE,) * 9).layers, "stack": stack(9)},
        {"layers": view((Steps(then=100),)).layers, "stack": stack(1)},
        {"stack": stack(2, input_size=0)},
    ],
    ids=lambda odd: " ".join(odd),
)
def test_numbers_stay_within_bounds(odd: dict[str, Any]) -> None:
    numbers = features(replace(SEEN, **odd))
    assert numbers.shape == (len(INPUTS),)
    assert numbers.dtype == np.float32
    assert np.abs(numbers).max() <= FAR


def test_a_reward_has_named_parts() -> None:
    earned = unroll_reward(
        UnrollWeights(time=2.0, memory=3.0, cache=0.1),
        took_s=2e-3,
        reference_s=1e-3,
        held_bytes=150.0,
        memory_limit_bytes=100,
        hit_share=0.5,
    )
    assert earned.time == pytest.approx(-2 * log(2))
    assert earned.memory == pytest.approx(-1.5)
    assert earned.cache == pytest.approx(0.05)
    assert list(earned.parts()) == ["time", "memory", "cache"]
    assert earned.total == pytest.approx(sum(earned.parts().values()))


def test_what_is_not_known_and_what_is_kept_earns_nothing() -> None:
    for limit in (None, 100):
        earned = unroll_reward(
            UnrollWeights(),
            took_s=1e-3,
            reference_s=1e-3,
            held_bytes=100.0,
            memory_limit_bytes=limit,
            hit_share=None,
        )
        assert earned.total == 0
