"""A step fails, a live call was wrong, weights change: the plan at fault no longer serves.

Must not know who decides or how a plan is built; another plan is asked for in the background.
"""

import threading
from collections.abc import Callable, Sequence
from typing import Any

from gearshift.act.background import Background
from gearshift.act.changes import Changes
from gearshift.act.pool import EnginePool
from gearshift.act.renew import Renewal
from gearshift.act.serving import Serving
from gearshift.act.variants import Variants
from gearshift.capture.weights import WeightWatch
from gearshift.errors import EngineError, VerifyError
from gearshift.ir.topology import CALLER, members
from gearshift.plan import Plan, Region
from gearshift.plan.plan import on_caller


class Mishaps:
    """Called on whatever thread notices. Each drops the plan at fault first: later calls run
    eagerly, on the model there is now, until another plan is ready."""

    def __init__(
        self,
        serving: Serving,
        changes: Changes,
        pool: EnginePool,
        background: Background,
        watches: Callable[[], Sequence[WeightWatch]],
    ) -> None:
        self.faults: dict[str, int] = {}
        """Failures survived, by engine."""
        self._serving, self._changes = serving, changes
        self._pool, self._background = pool, background
        self._renewal = Renewal(background, watches)
        self._counting = threading.Lock()

    def weights_changed(self) -> None:
        """The plan is built anew once they rest."""
        serving, changes = self._serving, self._changes
        trial = serving.trial
        if trial is not None:
            serving.drop(trial.new.plan)
        plan, count = serving.active.plan, changes.count
        if plan != serving.eager.executor.plan and serving.to_eager(instead_of=plan):
            with changes.lock:
                serving.shelf.clear()
            self._tell_eager("weights changed")
            self._renewal.begin(
                lambda: changes.swap_unless_overtaken(plan, "weights changed", count),
                lambda: changes.count != count,
            )

    def failed(self, variants: Variants, region: Region, error: Exception) -> None:
        """A step raised; its call is being run again eagerly. Later ones avoid the culprit."""
        with self._counting:
            self.faults[region.engine] = self.faults.get(region.engine, 0) + 1
        plan = self._serving.plan_of(variants)
        if plan is None or not self._serving.drop(plan):
            return
        text = _told(error)
        self._changes.record(plan, f"region {region.name} failed on {region.engine}", text)
        self._tell_eager("a plan failed")
        culprit = _culprit(region.engine, error)
        if culprit is None:
            self._changes.ban(plan, f"it failed: {text}")
            return
        self._pool.quarantine(culprit, text)
        moved = tuple(on_caller(r) if culprit in members(r.engine) else r for r in plan.regions)
        reason = f"engine {culprit} is quarantined"
        count, instead = self._changes.count, Plan(regions=moved)
        self._background.submit(lambda: self._changes.swap_unless_overtaken(instead, reason, count))

    def broken(
        self, plan: Plan, args: tuple[Any, ...], kwargs: dict[str, Any], error: Exception
    ) -> Any:
        """The model's own code failed around captured parts. If it does not by itself, the plan is
        at fault."""
        result = self._serving.eager.executor(args, kwargs)
        self._serving.drop(plan)
        text = _told(error)
        self._changes.ban(plan, f"it failed: {text}")
        self._changes.record(plan, "the model's own code failed around captured parts", text)
        self._tell_eager("a plan failed")
        return result

    def caught(self, plan: Plan, difference: VerifyError) -> None:
        """A live call's result differed: the plan that gave it must not serve, nor what was built
        beside it: if a weight changed unseen, that is wrong as well."""
        self._serving.drop(plan)
        with self._changes.lock:
            self._serving.shelf.clear()
        self._changes.ban(plan, f"it was wrong: {difference}")
        self._changes.record(plan, "a live call was checked", f"rolled back: {difference}")
        self._tell_eager("a plan was wrong")

    def _tell_eager(self, reason: str) -> None:
        """That the model itself serves from here on, if it does."""
        eager = self._serving.eager.executor
        if self._serving.active is eager:
            self._changes.record(eager.plan, reason, "serves until another plan is ready")


def _culprit(engine: str, error: Exception) -> str | None:
    """The engine to be avoided; None if it is the plan. Of a team only who failed itself: what
    divides the work and joins it is the plan's."""
    if engine == CALLER:
        return None
    if len(members(engine)) == 1:
        return engine
    return error.engine if isinstance(error, EngineError) else None


def _told(error: Exception) -> str:
    return f"{type(error).__name__}: {str(error)[:200]}"
