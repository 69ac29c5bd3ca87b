"""Which plan calls run on: one in force, perhaps one that takes turns with it, some standing by.

Must not know how a plan is built, or why it is put in force.
"""

import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import partial

from gearshift.act.background import Background
from gearshift.act.executor import EagerExecutor, Executor, Timing
from gearshift.act.layers import Strides, chunks_of, hand_over, take_own
from gearshift.act.prepared import Prepared
from gearshift.act.recurrent.runner import Chunk
from gearshift.act.shelf import Shelf
from gearshift.act.turns import TakingTurns
from gearshift.act.variants import Variants
from gearshift.plan.plan import Plan, Region

RECENT_CALLS, RECENT_CHUNKS = 512, 8192


@dataclass(slots=True)
class Crowd:
    """Who wants a core beside the calls."""

    background: Background
    neighbours: int = 0
    """As whoever looks out for them last told."""

    def others(self) -> int:
        """Neighbours, and our own background work."""
        return self.neighbours + self.background.busy


class Serving:
    """`active` is the one reference a call takes. Whoever changes plans holds the runtime's lock;
    `to_eager` may be called without it."""

    def __init__(
        self, eager: EagerExecutor, background: Background, watch_live: Callable[[bool], None]
    ) -> None:
        self.eager = Prepared(executor=eager, variants=())
        self.active: Executor = eager
        self.in_force, self.newcomer = self.eager, self.eager
        self.variants: tuple[Variants, ...] = ()
        """Of all plans that calls may run on,"""
        self._left: tuple[Variants, ...] = ()
        """and of those that calls began on before the last exchange."""
        self.shelf = Shelf(self.let_go)
        self.recent: deque[tuple[Plan, Timing]] = deque(maxlen=RECENT_CALLS)
        """The last calls that `timings` told of,"""
        self.strides = Strides()
        """and how recurrent layers went through sequences,"""
        self.fresh_chunks: deque[tuple[Region, Chunk]] = deque(maxlen=RECENT_CHUNKS)
        """with the last chunks that nobody has asked for yet."""
        self._background, self._watch_live = background, watch_live
        self._exchanging = threading.Lock()

    @property
    def trial(self) -> TakingTurns | None:
        """Two plans that take turns, if there are."""
        active = self.active
        return active if isinstance(active, TakingTurns) else None

    @property
    def executors(self) -> tuple[Executor, ...]:
        """Those that calls may run on now."""
        trial = self.trial
        return (self.active,) if trial is None else (trial.old, trial.new)

    def timings(self) -> Iterator[tuple[Plan, Timing]]:
        """Of the calls since this was last asked, each with its plan."""
        for executor in self.executors:
            for timing in executor.timings():
                self.recent.append((executor.plan, timing))
                yield executor.plan, timing
        chunks = self._chunks(self.variants)
        self.fresh_chunks.extend(chunks)
        self.strides.add((*self._chunks(self._left), *chunks))

    def _chunks(self, variants: Iterable[Variants]) -> list[tuple[Region, Chunk]]:
        return list(chunks_of(built for v in variants for built in list(v.built)))

    def serve(
        self, prepared: Prepared, *, shelve: Prepared | None = None, wanted: bool = True
    ) -> None:
        """What served before is freed, but for what is shelved."""
        kept = () if shelve is None else shelve.variants
        before = self.in_force
        take_own(prepared)
        self._exchange(prepared.executor, prepared.variants, in_force=prepared, kept=kept)
        hand_over(before, prepared)
        if shelve is not None:
            self.shelf.put(shelve, wanted=wanted)

    def begin_trial(self, new: Prepared, *, credit_s: float) -> None:
        old = self.in_force
        take_own(new)
        turns = TakingTurns(old.executor, new.executor, credit_s=credit_s)
        self.newcomer = new
        self._exchange(turns, (*old.variants, *new.variants))

    def end_trial(self, *, keep_new: bool) -> TakingTurns | None:
        """The better one serves, the other stands by, a losing newcomer only if there is room;
        None if the trial was overtaken."""
        turns = self.trial
        if turns is not None:
            new, old = self.newcomer, self.in_force
            better, other = (new, old) if keep_new else (old, new)
            self.serve(better, shelve=other, wanted=keep_new)
        return turns

    def standing_by(self, plan: Plan) -> Prepared | None:
        """Also if it is in force, or the model itself."""
        both = {p.executor.plan: p for p in (self.eager, self.in_force)}
        return both.get(plan) or self.shelf.look(plan)

    def plan_of(self, variants: Variants) -> Plan | None:
        """Which plan they are of, if calls may run on it."""
        both = (self.in_force, self.newcomer) if self.trial is not None else (self.in_force,)
        return next((p.executor.plan for p in both if variants in p.variants), None)

    def drop(self, culprit: Plan) -> bool:
        """Calls no longer run on this plan: a newcomer leaves the other one to serve, else the
        model itself does. False if they do not run on it anyway."""
        trial = self.trial
        if trial is not None and culprit == trial.new.plan and culprit != trial.old.plan:
            return self._exchange(self.in_force.executor, self.in_force.variants, culprit)
        return self.to_eager(instead_of=culprit)

    def to_eager(self, instead_of: Plan | None = None) -> bool:
        """Unless it is only to take the place of a plan that calls no longer run on."""
        return self._exchange(self.eager.executor, (), instead_of, in_force=self.eager)

    def _exchange(
        self,
        executor: Executor,
        variants: tuple[Variants, ...],
        instead_of: Plan | None = None,
        *,
        in_force: Prepared | None = None,
        kept: tuple[Variants, ...] = (),
    ) -> bool:
        """False if the plan to be replaced is not there any more."""
        with self._exchanging:
            before, old = self.active, self.variants
            if instead_of is not None and not before.runs(instead_of):
                return False
            now, then = {executor, *self._both(executor)}, {before, *self._both(before)}
            for newly in now - then:
                deque(newly.timings(), maxlen=0)  # of when it served before
            for leaving in then - now:
                self.recent.extend((leaving.plan, timing) for timing in leaving.timings())
            self._chunks(v for v in variants if v not in old)  # of when they served before
            self._left = tuple(v for v in old if v not in variants)
            self.active, self.variants = executor, variants
            if in_force is not None:
                self.in_force = in_force
        self._watch_live(executor is not self.eager.executor)
        for current in variants:
            current.revive()
        gone = [v for v in old if v not in variants]
        for variants_before in gone:
            variants_before.retire()
        releases = [partial(self._release, v) for v in gone if v not in kept]
        if releases:
            left = then - now
            self._background.let_go(lambda: sum(e.in_flight() for e in left), releases)
        return True

    def _release(self, variants: Variants) -> None:
        """What its last calls did is told all the same."""
        self.strides.add(self._chunks((variants,)))
        variants.release()

    def _both(self, executor: Executor) -> tuple[Executor, ...]:
        return (executor.old, executor.new) if isinstance(executor, TakingTurns) else ()

    def let_go(self, prepared: Prepared) -> None:
        """Frees what is not wanted any more, once no call runs on it."""
        self._background.let_go(prepared.executor.in_flight, [prepared.release])
