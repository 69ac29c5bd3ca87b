"""How contenders take turns."""

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

from gearshift.bench.stage import Turns, in_turns

PACE = Turns(slice_s=1.0, rounds=4, min_calls=20, most=10)


class Calling:
    """So many calls a second."""

    def __init__(self, rate: int) -> None:
        self.rate = rate

    def run(self, seconds: float) -> dict[str, Any]:
        return {"call_s": [1 / self.rate] * int(self.rate * seconds), "cpu_s": 0.0}


def slices(pace: Turns = PACE, **rates: int) -> dict[str, int]:
    stage: Any = SimpleNamespace(model="m", say=lambda text: None)
    contenders: Any = {name: Calling(rate) for name, rate in rates.items()}
    return {name: len(told) for name, told in in_turns(stage, contenders, pace).items()}


def test_everybody_has_as_many_turns_if_that_is_enough_calls() -> None:
    assert slices(one=5, other=100) == {"one": 4, "other": 4}


def test_only_who_has_had_too_few_calls_has_more_turns_and_not_for_ever() -> None:
    assert slices(slow=3, stuck=1, other=100) == {"slow": 8, "stuck": 10, "other": 4}


def test_who_is_far_behind_has_two_slices_except_who_tells_the_noise() -> None:
    found = slices(replace(PACE, far=2.0), best=100, behind=40, near=60, onnxruntime=30)
    assert found == {"best": 4, "behind": 2, "near": 4, "onnxruntime": 4}
