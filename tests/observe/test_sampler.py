"""Snapshots: calls filed by what came in and who was there, energy by the calls that used it."""

from dataclasses import dataclass, field

import pytest
from decide.world import Call, Label

from gearshift.ir.measurement import Metric, Source
from gearshift.observe.sampler import ENERGY, MANY, OTHERS, Sampler, about


@dataclass
class Counters:
    now_s: float = 0.0
    others: float = 0.0
    energy_j: float = 1.0
    by_core: tuple[float, ...] = ()
    noted: list[object] = field(default_factory=list)

    def clock(self) -> float:
        return self.now_s

    def read(self) -> dict[str, Metric]:
        return {
            OTHERS: Metric(value=self.others, source=Source.MEASURED),
            ENERGY: Metric(value=self.energy_j, source=Source.MEASURED),
            **{
                f"core.{core}.others_share": Metric(value=share, source=Source.MEASURED)
                for core, share in enumerate(self.by_core)
            },
        }

    def note(self, work: object) -> None:
        self.noted.append(work)


def sampler(counters: Counters) -> Sampler:
    return Sampler(counters, 2, clock=counters.clock)  # type: ignore[arg-type]


def calls(*signatures: str, at_s: float = 0.0, call_s: float = 0.1) -> list[tuple[str, Call]]:
    return [("plan", Call(Label(signature), at_s, call_s)) for signature in signatures]


def step(counters: Counters, seen: Sampler, seconds: float = 0.2) -> None:
    counters.now_s += seconds
    seen.glance()


@pytest.mark.parametrize(
    ("signature", "expected"),
    [
        ("float32[8, 100]", "float32[~8, ~128]"),
        ("int64[1, 37], 0.3, None, 'a'", "int64[~1, ~32], ~0.25, None, 'a'"),
        ("float32[], 0", "float32[], 0"),
    ],
)
def test_numbers_are_rounded_and_types_are_not(signature: str, expected: str) -> None:
    assert about(signature) == expected


def test_a_few_sizes_are_told_apart_and_many_only_roughly() -> None:
    counters = Counters()
    seen = sampler(counters)
    few = [f"float32[1, {n}]" for n in range(1, MANY + 1)]
    found = seen.take("plan", None, calls(*few))
    assert {sample.situation.signature for sample in found.samples} == set(few)
    many = [f"float32[1, {n}]" for n in range(96, 160)]
    found = seen.take("plan", None, calls(*many))
    found = seen.take("plan", None, calls(*many))
    assert {sample.situation.signature for sample in found.samples} == {"float32[~1, ~128]"}
    assert len(found.samples[0].seconds) == len(many)


def test_a_call_that_began_before_the_change_tells_of_neither_side() -> None:
    counters = Counters()
    seen = sampler(counters)
    step(counters, seen)
    counters.others = 0.5
    step(counters, seen)
    step(counters, seen)
    assert not seen.take("plan", None, calls("x")).samples, "those right around the change"
    step(counters, seen)
    late = [*calls("x", at_s=0.1, call_s=9.0), *calls("x", at_s=counters.now_s)]
    (sample,) = seen.take("plan", None, late).samples
    assert sample.situation.neighbours == 1
    assert sample.seconds == (0.1,)


def test_energy_is_shared_by_all_calls_also_those_not_timed() -> None:
    counters = Counters()
    seen = sampler(counters)
    step(counters, seen)
    found = seen.take("plan", None, calls("x"), served=(1000, 0.2))
    assert found.energy_j == pytest.approx(1 / 1000)
    assert (found.num_calls, found.served_s) == (1000, 0.2)
    step(counters, seen)
    found = seen.take("plan", None, calls("x"), served=(1010, 0.21))
    assert found.energy_j is None, "the machine was idle most of the time"
    step(counters, seen)
    found = seen.take("plan", None, calls("x", "y"), served=(1020, 0.41))
    assert found.energy_j is None, "nobody knows who used it"


def test_the_core_others_use_least_is_spare_while_there_are_neighbours() -> None:
    counters = Counters(by_core=(0.0, 0.0))
    seen = sampler(counters)
    found = []
    for counters.others, counters.by_core in ((0.0, (0.0, 0.0)), (0.5, (0.9, 0.1)), (0.0, (0, 0))):
        for _ in range(3):
            step(counters, seen)
        found.append(seen.spare_core)
    assert found == [None, 1, None]
