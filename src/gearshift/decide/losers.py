"""Plans that did not win their trial in a situation: not proposed there again for a while.

Must not know who proposes.
"""

from collections.abc import Mapping

from gearshift.decide.policy import CHANGED, TOO_SLOW, Outcome
from gearshift.decide.rests import Rests
from gearshift.ir.snapshot import Situation
from gearshift.plan.plan import Plan

REST_S, TOO_SLOW_S = 30.0, 15.0
"""How long a loser rests the first time; twice that the next. What ran out of credit before there
was a verdict gets another chance sooner."""


class Losers:
    def __init__(self) -> None:
        self._rests = Rests()

    def learn(self, outcome: Outcome, now_s: float) -> None:
        situation = outcome.situation
        if not outcome.kept and situation is not None and outcome.why != CHANGED:
            rest_s = TOO_SLOW_S if outcome.why == TOO_SLOW else REST_S
            self._rests.add((situation, outcome.plan), now_s, rest_s)

    def rests(self, situation: Situation, plan: str, now_s: float) -> bool:
        return self._rests((situation, plan), now_s)

    def without(self, plans: Mapping[str, Plan], situation: Situation, now_s: float) -> list[Plan]:
        return [plan for f, plan in plans.items() if not self.rests(situation, f, now_s)]
