"""How one plan follows another: asked for by hand, adopted, tried; and the record of why.

Must not know who decides or how a plan is built.
"""

import threading
from collections import deque
from collections.abc import Callable
from dataclasses import replace
from time import monotonic

from gearshift.act.prepared import Prepared
from gearshift.act.serving import Serving
from gearshift.act.turns import TakingTurns
from gearshift.errors import EngineError, GearshiftError, PlanError
from gearshift.plan.decision import Decision
from gearshift.plan.plan import Plan, why_malformed

MAX_DECISIONS = 256


class Changes:
    """One build at a time, under `building`; references are exchanged under `lock`, which is never
    held for long. Whoever needs both takes `building` first."""

    def __init__(
        self,
        serving: Serving,
        prepare: Callable[[Plan], Prepared],
        as_captured: Callable[[], bool],
    ) -> None:
        """`as_captured` tells whether what stands by was built from the weights there are now."""
        self.serving = serving
        self.building, self.lock = threading.RLock(), threading.RLock()
        self.by_hand = False
        """Whether the plan in force was asked for by the user: then it stays."""
        self.count = 0
        self.decisions: deque[Decision] = deque(maxlen=MAX_DECISIONS)
        self.banned: dict[str, str] = {}
        """Plans that failed or were wrong while they served, by fingerprint, and why."""
        self._prepare, self._as_captured = prepare, as_captured
        self._ended = False
        self.num_decisions = self.num_swaps = 0
        self.start_s = monotonic()
        self._trial: tuple[str, float | None] = ("", None)
        self._turns: TakingTurns | None = None

    def swap_by_hand(self, plan: Plan, reason: str) -> None:
        prepared = self._ready(plan, reason, None)
        with self.lock:
            self._serve(prepared, reason, None)
            self.by_hand = True
            self.serving.shelf.clear()

    def swap_unless_overtaken(self, plan: Plan, reason: str, count: int) -> None:
        """What somebody else has swapped to meanwhile stands."""
        if self.count == count:
            prepared = self._ready(plan, reason, None)
            with self.lock:
                if self.count == count:
                    self._serve(prepared, reason, None)
                else:
                    self.serving.let_go(prepared)

    def adopt(self, plan: Plan, reason: str, gain: float | None, *, build: bool = True) -> None:
        """The plan before stands by. Back to the model itself waits for no build; without `build`
        nothing does, and what does not stand by is refused."""
        eager = self.serving.eager
        prepared = eager if plan == eager.executor.plan else self._ready(plan, reason, gain, build)
        with self.lock:
            self._refuse_by_hand(prepared)
            self._serve(prepared, reason, gain, shelve=self.serving.in_force)

    def begin_trial(self, plan: Plan, reason: str, gain: float | None, *, credit_s: float) -> None:
        """From here on half the calls go to this plan, a few in a row."""
        new = self._ready(plan, reason, gain)
        with self.lock:
            self._refuse_by_hand(new)
            self._trial = (reason, gain)
            self.serving.begin_trial(new, credit_s=credit_s)
            self._turns = self.serving.trial

    def end_trial(self, *, keep_new: bool, why: str, gain: float | None) -> float:
        """Seconds the newcomer cost beyond the usual, also if the trial was overtaken."""
        with self.lock:
            begun, self._turns = self._turns, None
            turns = self.serving.end_trial(keep_new=keep_new)
            reason, predicted = self._trial
            if turns is None:
                if begun is not None:
                    self.record(begun.new.plan, reason, f"dropped: {why}", predicted, gain)
                return 0.0 if begun is None else begun.spent_s
            self.count += keep_new
            outcome = f"{'serves' if keep_new else 'dropped'}: {why}"
            self.record(turns.new.plan, reason, outcome, predicted, gain)
            return turns.spent_s

    def stand_by(self, plan: Plan, reason: str) -> None:
        """Builds a plan for when it is wanted."""
        if plan not in self.ready():
            prepared = self._ready(plan, reason, None)
            with self.lock:
                self._refuse_by_hand(prepared)
                self.serving.shelf.put(prepared)
            self.record(plan, reason, "stands by")

    def ban(self, plan: Plan, why: str) -> None:
        """Nobody but the user puts this plan in force again."""
        self.banned[plan.fingerprint] = why
        with self.lock:
            prepared = self.serving.shelf.take(plan)
            if prepared is not None:
                self.serving.let_go(prepared)

    def ready(self) -> list[Plan]:
        """Those that serve, or could at once."""
        serving = self.serving
        with self.lock:
            return [serving.active.plan, serving.eager.executor.plan, *serving.shelf.plans()]

    def end(self) -> None:
        """Back to the model itself; whatever was still to come is overtaken."""
        with self.lock:
            self._ended = True
            self.count += 1
            self.serving.to_eager()
            self.serving.shelf.clear()

    def record(
        self,
        plan: Plan,
        reason: str,
        outcome: str,
        predicted_gain: float | None = None,
        measured_gain: float | None = None,
    ) -> None:
        with self.lock:
            self.num_decisions += 1
            decision = Decision(
                number=self.num_decisions,
                at_s=monotonic() - self.start_s,
                plan=plan.fingerprint if isinstance(plan, Plan) else "no plan",
                summary=plan.summary if why_malformed(plan) is None else "",
                reason=reason,
                outcome=outcome,
                predicted_gain=predicted_gain,
                measured_gain=measured_gain,
            )
            self.num_swaps += decision.serves
            self.decisions.append(decision)

    def amend(self, plan: str, measured_gain: float) -> None:
        """What the last change to this plan brought, once it is known."""
        with self.lock:
            for index in range(len(self.decisions) - 1, -1, -1):
                old = self.decisions[index]
                if old.plan == plan:
                    self.decisions[index] = replace(old, measured_gain=measured_gain)
                    return

    def _ready(self, plan: Plan, reason: str, gain: float | None, build: bool = True) -> Prepared:
        """One that stands by, for the weights there are now; else built. A refusal is recorded."""
        if why_malformed(plan) is None and self._as_captured():
            with self.lock:
                prepared = self.serving.shelf.take(plan)
            if prepared is not None:
                return prepared
        if not build:
            raise PlanError("it does not stand by any more")
        try:
            return self._prepare(plan)
        except GearshiftError as error:
            self.record(plan, reason, f"refused: {error}", gain)
            raise

    def _serve(
        self,
        prepared: Prepared,
        reason: str,
        gain: float | None,
        *,
        shelve: Prepared | None = None,
    ) -> None:
        """`gain` is what is foreseen: old time over new."""
        if self._ended:
            self.serving.let_go(prepared)
            raise EngineError("this runtime is closed; the model itself answers")
        self.serving.serve(prepared, shelve=shelve)
        self.count += 1
        outcome = f"serves; verified, worst error {prepared.worst_error:.1g}"
        self.record(prepared.executor.plan, reason, outcome, gain)

    def _refuse_by_hand(self, prepared: Prepared) -> None:
        if self.by_hand or self._ended:
            self.serving.let_go(prepared)
            raise PlanError("the plan in force was asked for by hand")
