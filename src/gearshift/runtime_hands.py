"""The loop's hands on a runtime: adopt a plan, try one beside another, have one ready, play one.

Knows how each is done; must not know why.
"""

import logging
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from time import perf_counter
from typing import TYPE_CHECKING
from weakref import ref

import torch

from gearshift.act.background import Background
from gearshift.act.changes import Changes
from gearshift.act.executor import Timing, drained
from gearshift.act.layers import layers_of, take_own
from gearshift.act.measure import measure
from gearshift.act.openmp import sparing
from gearshift.act.workers import allow
from gearshift.capture.calls import own_copy
from gearshift.decide.policy import Proposal
from gearshift.errors import CompileError, GearshiftError, VerifyError
from gearshift.hands import Done, Gone, Refusal
from gearshift.ir.measurement import Measurement
from gearshift.ir.snapshot import LayerSeen
from gearshift.ir.topology import CALLER
from gearshift.plan.legal import Space, why_illegal
from gearshift.plan.plan import Plan
from gearshift.plan.rewrite import why_illegal as why_not_compiled

if TYPE_CHECKING:
    from gearshift.runtime import Runtime

log = logging.getLogger("gearshift")
MEASURE_S = 0.05
"""So long a region is timed by itself, beside the calls."""


class RuntimeHands:
    """Holds the runtime weakly: a loop must not keep alive what nobody can call any more."""

    def __init__(
        self, runtime: "Runtime", space: Space, changes: Changes, background: Background
    ) -> None:
        self._held, self._held_changes = ref(runtime), ref(changes)
        self._space, self._background = space, background
        self._pool = runtime._pool
        self._measured: deque[Measurement] = deque()
        self._played: deque[tuple[str, Timing]] = deque()
        self._kept_off: tuple[int | None, tuple[int, ...]] = (None, ())
        """Off which core which threads of backends are kept."""

    @property
    def _changes(self) -> Changes:
        changes = self._held_changes()
        if changes is None:
            raise Gone
        return changes

    @property
    def in_force(self) -> str:
        return self._changes.serving.active.plan.fingerprint

    @property
    def trial(self) -> str | None:
        trial = self._changes.serving.trial
        return None if trial is None else trial.new.plan.fingerprint

    @property
    def spent_s(self) -> float:
        trial = self._changes.serving.trial
        return 0.0 if trial is None else trial.spent_s

    @property
    def by_hand(self) -> bool:
        return self._changes.by_hand

    @property
    def served(self) -> tuple[int, float]:
        tally = self._runtime._tallies.sum()
        return tally.calls, tally.total_s

    @property
    def held_bytes(self) -> int:
        return self._runtime.memory.total_bytes

    @property
    def _runtime(self) -> "Runtime":
        runtime = self._held()
        if runtime is None:
            raise Gone
        return runtime

    @property
    def ready(self) -> Sequence[str]:
        return [plan.fingerprint for plan in self._changes.ready()]

    @property
    def disturbed(self) -> bool:
        return self._background.was_busy()

    @property
    def threads(self) -> Mapping[str, int]:
        return self._pool.threads()

    def note_neighbours(self, count: int, spare_core: int | None) -> None:
        runtime = self._runtime
        runtime._crowd.neighbours = count
        executables = runtime._room.executables
        cores = frozenset(self._pool.get(CALLER).spec.cores)
        threads = tuple(n for built in executables for n in built.threads)
        kept = (spare_core, threads)
        if kept != self._kept_off:
            allow(threads, cores - {spare_core} or cores)
            self._kept_off = kept
        all_but_one = spare_core is not None and count >= len(cores) - 1
        busy = cores - {spare_core} if all_but_one else frozenset()
        for shares in filter(None, (getattr(built.run, "shares", None) for built in executables)):
            shares.expect(busy)

    def timings(self) -> Iterable[tuple[str, Timing]]:
        for plan, timing in self._changes.serving.timings():
            yield plan.fingerprint, timing
        yield from drained(self._played)

    def why_illegal(self, plan: Plan) -> str | None:
        return self._changes.banned.get(plan.fingerprint) or why_illegal(plan, self._space)

    def adopt(self, proposal: Proposal, done: Done) -> None:
        plan, reason, gain = proposal.plan, proposal.reason, proposal.gain
        if plan in self._changes.ready():
            _attempt(lambda: self._changes.adopt(plan, reason, gain, build=False), done)
        else:
            self._soon(lambda: self._changes.adopt(plan, reason, gain), done)

    def begin_trial(self, proposal: Proposal, credit_s: float, done: Done) -> None:
        plan, reason, gain = proposal.plan, proposal.reason, proposal.gain
        self._soon(lambda: self._changes.begin_trial(plan, reason, gain, credit_s=credit_s), done)

    def end_trial(self, *, keep_new: bool, why: str, gain: float | None) -> float:
        return self._changes.end_trial(keep_new=keep_new, why=why, gain=gain)

    def stand_by(self, proposal: Proposal, done: Done) -> None:
        self._soon(lambda: self._changes.stand_by(proposal.plan, proposal.reason), done)

    @property
    def can_play(self) -> bool:
        """A call would train a model in training mode."""
        fragments = self._runtime.program.fragments
        return not any(fragment.watch.training() for fragment in fragments)

    def make_ready(self, plan: Plan, reason: str, *, keep: Plan) -> Refusal | None:
        crowd = self._runtime._crowd
        refusals: list[Refusal | None] = []
        self._changes.serving.standing_by(keep)  # the last one looked at goes last
        stand_by = sparing(self._changes.stand_by, lambda: crowd.neighbours)
        _attempt(lambda: stand_by(plan, reason), refusals.append)
        return refusals[0]

    def play(self, plan: Plan, seconds: float, least: int, between: Callable[[], object]) -> None:
        changes, runtime = self._changes, self._runtime
        prepared = changes.serving.standing_by(plan)
        if prepared is None:  # it had to make room
            return
        take_own(prepared)
        args, kwargs = own_copy(runtime.program.example)
        if runtime.program.skeleton is not None:  # its own Python is not run more than must be
            seconds = 0.0
        end_s, calls, faults = perf_counter() + seconds, 0, sum(runtime.faults.values())
        with torch.no_grad():
            while calls < least or perf_counter() < end_s:
                prepared(*args, **kwargs)
                calls += 1
                between()
        timings = [(plan.fingerprint, timing) for timing in prepared.executor.timings()]
        if sum(runtime.faults.values()) > faults:
            changes.ban(plan, "it failed on the example")
        else:
            self._played.extend(timings)

    def measure(self, proposal: Proposal, done: Done) -> None:
        self._soon(lambda: self._measure(proposal), done)

    def _measure(self, proposal: Proposal) -> None:
        runtime, space, plan = self._runtime, self._space, proposal.plan
        legal = [r for r in plan.regions if why_not_compiled(Plan(regions=(r,)), space) is None]
        (fragment,) = runtime.program.fragments
        one_by_one = [runtime._need(fragment, (region,), ()) for region in legal]
        with runtime._room.take(lambda: max(one_by_one, default=0)):
            rows = list(
                measure(
                    fragment,
                    legal,
                    runtime.open_engine,
                    runtime.tolerance,
                    seconds=MEASURE_S,
                    num_threads=space.max_threads,
                )
            )
        self._measured.extend(rows)
        told = f"measured {len(rows)} of {len(plan.regions)} by themselves"
        self._changes.record(plan, proposal.reason, told)

    def take_measured(self) -> tuple[Measurement, ...]:
        return tuple(drained(self._measured))

    def take_layers(self) -> tuple[LayerSeen, ...]:
        serving = self._changes.serving
        chunks = list(drained(serving.fresh_chunks))
        return () if serving.trial is not None else layers_of(chunks)

    def amend(self, plan: str, measured_gain: float) -> None:
        self._changes.amend(plan, measured_gain)

    def _soon(self, work: Callable[[], None], done: Done) -> None:
        self._background.submit(lambda: _attempt(work, done))


def _attempt(work: Callable[[], None], done: Done) -> None:
    """`done` hears what went wrong, and whether it would again."""
    try:
        work()
    except (CompileError, VerifyError) as error:
        done(Refusal(str(error), lasting=True))
    except GearshiftError as error:
        done(Refusal(str(error), lasting=False))
    except Exception as error:  # a bug is shown, and must not keep the loop waiting
        log.exception("a plan could not be made ready")
        done(Refusal(f"{type(error).__name__}: {error}", lasting=True))
    else:
        done(None)
