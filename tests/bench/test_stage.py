"""How contenders take turns."""

from types import SimpleNamespace
from typing import Any

from gearshift.bench.stage import Turns, in_turns

PACE = Turns(slice_s=1.0, rounds=4, min_calls=20, most=10)


class Calling:
    """So many calls a second."""

    def __init__(self, rate: int) -> None:
        self.rate = rate

    def run(self, seconds: float) -> dict[str, Any]:
        return {"call_s": [1 / self.rate] * int(self.rate * seconds)}


def slices(**rates: int) -> dict[str, int]:
    stage: Any = SimpleNamespace(model="m", say=lambda text: None)
    contenders: Any = {name: Calling(rate) for name, rate in rates.items()}
    return {name: len(told) for name, told in in_turns(stage, contenders, PACE).items()}


def test_everybody_has_as_many_turns_if_that_is_enough_calls() -> None:
    assert slices(one=5, other=100) == {"one": 4, "other": 4}


def test_only_who_has_had_too_few_calls_has_more_turns_and_not_for_ever() -> None:
    assert slices(slow=3, stuck=1, other=100) == {"slow": 8, "stuck": 10, "other": 4}
