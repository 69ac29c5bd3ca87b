"""The seam between what is known and what is decided: what a plan would cost.

Must not know who asks.
"""

from collections.abc import Mapping, Sequence
from typing import Protocol

from gearshift.ir.snapshot import Sample, Situation
from gearshift.plan.plan import Plan, Region
from gearshift.predict.estimate import Estimate


class CostModel(Protocol):
    @property
    def minute(self) -> float:
        """How many times longer than usual everything takes just now."""

    def add(self, sample: Sample) -> None:
        """What was measured."""

    def relate(
        self, situation: Situation, plan: str, other: str, times_as_fast: float, calls: int
    ) -> None:
        """What so many calls of each in turns told, in place of what was measured of the plan."""

    def measured(self, situation: Situation, plan: str, least: int = ...) -> Estimate | None:
        """From calls in this very situation, if there were at least so many."""

    def estimate(
        self, plan: Plan, situation: Situation, plans: Mapping[str, Plan]
    ) -> Estimate | None:
        """The best guess there is; None if there is none."""

    def situations(self) -> Sequence[Situation]:
        """Those anything was measured in."""


class NullCostModel:
    """Knows nothing."""

    minute = 1.0

    def add(self, sample: Sample) -> None:
        return None

    def relate(
        self, situation: Situation, plan: str, other: str, times_as_fast: float, calls: int
    ) -> None:
        return None

    def measured(self, situation: Situation, plan: str, least: int = 1) -> Estimate | None:
        return None

    def estimate(
        self, plan: Plan, situation: Situation, plans: Mapping[str, Plan]
    ) -> Estimate | None:
        return None

    def situations(self) -> Sequence[Situation]:
        return ()


def check_cost_model(model: CostModel) -> None:
    """Raises AssertionError, saying what was wrong."""
    plan = Plan(regions=(Region(ops=("op",)),))
    situation = Situation(signature="x", neighbours=0)
    plans = {plan.fingerprint: plan}
    for seconds in (float("nan"), float("inf"), -1.0, 0.0):
        model.add(Sample(plan=plan.fingerprint, situation=situation, seconds=(seconds,) * 50))
        found = model.measured(situation, plan.fingerprint)
        assert found is None, f"{seconds} s is no time a call takes"
    model.add(Sample(plan=plan.fingerprint, situation=situation, seconds=(0.01,) * 50))
    for found in (
        model.measured(situation, plan.fingerprint),
        model.estimate(plan, situation, plans),
    ):
        if found is not None:
            assert 0.009 < found.mean_s < 0.011, "what was measured is what is told"
            assert found.deviation_s >= 0, "a deviation is not negative"
    elsewhere = Situation(signature="y", neighbours=0)
    assert model.measured(elsewhere, plan.fingerprint) is None, "it was never measured there"
