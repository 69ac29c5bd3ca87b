"""adapt() and the Runtime: a model that can be called as before, and the plan it runs on.

A recipe: joins capture, plan and act. Knows how they fit, not how each works.
"""

import inspect
import os
import threading
import warnings
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from time import monotonic, perf_counter
from typing import Any
from weakref import WeakSet, finalize

from torch import nn
from torch.export import ExportedProgram

from gearshift import settings
from gearshift.act.audit import Audit
from gearshift.act.backends import BACKENDS
from gearshift.act.background import Background
from gearshift.act.compile import fragment_regions, order_for
from gearshift.act.engines import Engine
from gearshift.act.executor import (
    EagerExecutor,
    Executor,
    Key,
    PartialExecutor,
    WholeExecutor,
    key_of,
)
from gearshift.act.pool import EnginePool, open_pool
from gearshift.act.prepared import Prepared
from gearshift.act.renew import Renewal
from gearshift.act.shelf import Shelf
from gearshift.act.tally import Tallies
from gearshift.act.turns import TakingTurns
from gearshift.act.variants import Variants, Workshop, explain_refusal
from gearshift.act.verify import Tolerance, verify_parts
from gearshift.adaptive import open_loop
from gearshift.capture.load import capture
from gearshift.capture.program import Fragment, Program
from gearshift.decide.guard import Limits
from gearshift.decide.policy import Proposal
from gearshift.errors import EngineError, GearshiftError, MemoryLimitError, PlanError, VerifyError
from gearshift.ir.measurement import Memory
from gearshift.ir.topology import CALLER
from gearshift.plan import Objective, Plan, Region, Space, check, render
from gearshift.plan.decision import Decision
from gearshift.plan.plan import ordered, whole, why_malformed

MAX_DECISIONS = 256
SETTLE_S = 10.0


def adapt(
    model: nn.Module | ExportedProgram | Program | str | Path,
    example_inputs: Any = None,
    *,
    example_kwargs: dict[str, Any] | None = None,
    objective: Objective | None = None,
    engines: str | Sequence[str | Engine] | EnginePool = "auto",
    tolerance: Tolerance | None = None,
    policy: str | None = None,
    limits: Limits | None = None,
) -> "Runtime":
    """A drop-in for `model`. Takes the seconds of an export, then serves: eager at once, better
    plans as they are found while calls flow, or the one given to `swap`.

    `example_inputs` is a tensor, a tuple of positional arguments or a dict of keyword arguments.
    `model` may also be a built-in name, `module:factory`, `file.py:factory`, a .pt2 or .onnx file.
    `policy` decides: bandit, rules, proportional, or keep for a runtime that changes nothing by
    itself; `limits` bound what it may cost.
    """
    program = capture(model, example_inputs, example_kwargs or {})
    for line in program.uncaptured:
        warnings.warn(f"not captured, runs as before: {line}", stacklevel=2)
    return Runtime(
        program,
        objective=objective or Objective(),
        engines=engines,
        tolerance=tolerance or Tolerance(),
        policy=policy or settings.policy(),
        limits=limits or Limits(),
    )


class Runtime:
    """Calls go to the executor in force, taken by one reference; `swap` puts another there."""

    def __init__(
        self,
        program: Program,
        *,
        objective: Objective,
        engines: str | Sequence[str | Engine] | EnginePool,
        tolerance: Tolerance,
        policy: str,
        limits: Limits,
    ) -> None:
        self.program, self.objective, self.tolerance = program, objective, tolerance
        self.decisions: deque[Decision] = deque(maxlen=MAX_DECISIONS)
        self.faults: dict[str, int] = {}
        """Failures survived, by engine."""
        self._start_s = monotonic()
        self._pool = open_pool(engines)
        self._owns_pool = self._pool is not engines
        self.open_engine = self._pool.get
        self._background = Background()
        self._tallies = Tallies()
        self._swapping = threading.RLock()
        self._closed = False
        self._swaps = self._spoken_for = 0
        self._shop = Workshop(
            open_engine=self._pool.get,
            background=self._background,
            tolerance=tolerance,
            tallies=self._tallies,
            room=self._room,
            weights_changed=self._weights_changed,
            failed=self._failed,
        )
        self._audit = Audit(self._background, tolerance, self._caught)
        self._variants: tuple[Variants, ...] = ()
        self._built: WeakSet[Variants] = WeakSet()
        self._exchanging = threading.Lock()
        self._renewal = Renewal(
            self._background, lambda: [fragment.watch for fragment in self.program.fragments]
        )
        self._eager = self._eager_executor()
        self._active: Executor = self._eager
        self._in_force = Prepared(executor=self._eager, variants=())
        self._trial: tuple[Prepared, float | None, str] | None = None
        self._shelf = Shelf(self._let_go)
        self.by_hand = False
        """Whether the plan in force was asked for by `swap`: then it stays."""
        self._loop = open_loop(self, policy, limits)
        if self._loop is not None:
            self._loop.start()
        ending = finalize(self, _end, self._background, self._pool if self._owns_pool else None)
        ending.atexit = False
        _RUNTIMES.add(self)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        start_s = perf_counter()
        executor = self._active
        next(executor.entered)
        try:
            return executor(args, kwargs)
        finally:
            next(executor.left)
            tally = self._tallies.mine()
            tally.calls += 1
            tally.total_s += perf_counter() - start_s

    def __getattr__(self, name: str) -> Any:
        """Whatever else is asked for, the model answers: parameters(), config, eval()."""
        if name.startswith("_"):
            raise AttributeError(name)
        asked = getattr(self.program.eager, name)
        return partial(self._forward, asked) if inspect.ismethod(asked) else asked

    def _forward(self, method: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        """A method that returns the model, as eval() does, returns the runtime here."""
        result = method(*args, **kwargs)
        return self if result is self.program.eager else result

    @property
    def plan(self) -> Plan:
        """The plan in force."""
        return self._active.plan

    @property
    def trial(self) -> TakingTurns | None:
        """Two plans that take turns, if there are."""
        active = self._active
        return active if isinstance(active, TakingTurns) else None

    @property
    def executors(self) -> tuple[Executor, ...]:
        """Those that calls may run on now."""
        trial = self.trial
        return (self._active,) if trial is None else (trial.old, trial.new)

    def in_background(self, work: Callable[[], None]) -> None:
        self._background.submit(work)

    @property
    def space(self) -> Space:
        """What may be decided for this model on this machine."""
        graph = self.program.graph
        runnable = {name: frozenset[str]() for name in BACKENDS}
        for name, backend in BACKENDS.items():
            for fragment in self.program.fragments:
                runnable[name] |= backend.runnable(fragment)
        num_cores = len(self._pool.get(CALLER).spec.cores)
        rewrites = [r for b in BACKENDS.values() for r in b.rewrites(num_cores) if runnable[b.name]]
        specs = [spec for spec in self._pool.topology.engines if spec.kind == "cuda"]
        return Space(
            graph=graph,
            engines=self._pool.usable,
            rewrites=tuple(rewrites),
            runnable={name: ops for name, ops in runnable.items() if ops or name == "eager"},
            settings={name: backend.settings for name, backend in BACKENDS.items()},
            engine_backends={spec.name: frozenset({"eager"}) for spec in specs},
            max_threads=num_cores,
        )

    @property
    def memory(self) -> Memory:
        """Of the plan in force, of those being built, and of those not yet let go."""
        variants = [variant for v in list(self._built) for variant in v.built]
        regions = {id(e): e.held_bytes for variant in variants for e in variant.executables}
        return Memory(weight_bytes=self.program.weight_bytes, region_bytes=sum(regions.values()))

    @property
    def coverage(self) -> float | None:
        """The share of the time of all calls spent in captured regions; None before the first."""
        tally = self._tallies.sum()
        return 1 - tally.outside_s / tally.total_s if tally.total_s > 0 else None

    def swap(self, plan: Plan, reason: str = "asked for") -> None:
        """Build, verify, then serve on this plan, until another is asked for or `release` called.
        Calls go on meanwhile; raises and changes nothing if the plan is illegal, cannot be built,
        does not fit the memory limit, or is wrong."""
        with self._swapping:
            self._swap(plan, reason)
            self.by_hand = True
            self._shelf.clear()

    def release(self) -> None:
        """The plan in force, if it was asked for by hand, may be changed by the policy again."""
        self.by_hand = False

    def adopt(self, proposal: Proposal) -> None:
        """The loop's way to swap: the plan before stands by."""
        with self._swapping:
            if not self.by_hand:
                gain = _gain(proposal.current_s, proposal.predicted_s)
                self._swap(proposal.plan, proposal.reason, gain, shelve=True)

    def begin_trial(self, proposal: Proposal, credit_s: float) -> None:
        """From here on every other call goes to this plan."""
        with self._swapping:
            if self.by_hand:
                raise PlanError("the plan in force was asked for by hand")
            gain = _gain(proposal.current_s, proposal.predicted_s)
            try:
                new = self._take(proposal.plan)
            except GearshiftError as error:
                self._decide(proposal.plan, proposal.reason, f"refused: {error}", gain)
                raise
            old = self._in_force
            usual_s = proposal.current_s or 0.0
            turns = TakingTurns(old.executor, new.executor, usual_s=usual_s, credit_s=credit_s)
            self._trial = (new, gain, proposal.reason)
            self._put_in_force(turns, (*old.variants, *new.variants))

    def end_trial(self, *, keep_new: bool, why: str, gain: float | None) -> float:
        """The better one serves, the other stands by. Seconds the newcomer cost beyond the usual;
        nothing changes if the trial was overtaken."""
        with self._swapping:
            turns = self.trial
            if turns is None or self._trial is None:
                return 0.0
            (new, predicted, reason), old = self._trial, self._in_force
            winner, loser = (new, old) if keep_new else (old, new)
            self._serve(winner, shelve=loser)
            self._swaps += keep_new
            outcome = f"{'serves' if keep_new else 'dropped'}: {why}"
            self._decide(new.executor.plan, reason, outcome, predicted, gain)
            return turns.spent_s

    def stand_by(self, plan: Plan) -> None:
        """Builds a plan for when it is wanted."""
        with self._swapping:
            if plan not in self._shelf and plan != self.plan:
                self._shelf.put(self.prepare(plan))

    def _swap(
        self, plan: Plan, reason: str, gain: float | None = None, *, shelve: bool = False
    ) -> None:
        try:
            prepared = self._take(plan)
        except GearshiftError as error:
            self._decide(plan, reason, f"refused: {error}", gain)
            raise
        self._serve(prepared, shelve=self._in_force if shelve else None)
        self._swaps += 1
        outcome = f"serves; verified, worst error {prepared.worst_error:.1g}"
        self._decide(plan, reason, outcome, gain)

    def _take(self, plan: Plan) -> Prepared:
        """From the shelf if it stands by, for the weights there are now; else built."""
        usable = why_malformed(plan) is None and self._as_captured()
        return (self._shelf.take(plan) if usable else None) or self.prepare(plan)

    def _serve(self, prepared: Prepared, *, shelve: Prepared | None) -> None:
        kept = () if shelve is None else shelve.variants
        self._put_in_force(prepared.executor, prepared.variants, kept=kept)
        self._in_force, self._trial = prepared, None
        if shelve is not None:
            self._shelf.put(shelve)

    def prepare(self, plan: Plan) -> Prepared:
        """The plan checked, built and verified, ready to be called, but not in force."""
        with self._swapping:
            if self._closed:
                raise EngineError("this runtime is closed; the model itself answers")
            if not self.program.fragments:
                raise PlanError(f"nothing was captured: {self.program.uncaptured[0]}")
            self._check(plan)
            if any(fragment.watch.training() for fragment in self.program.fragments):
                raise PlanError("the model is in training mode; call .eval() first")
            self._renew_weights()
            executor, variants = self._build(ordered(self.program.graph, plan.regions))
            return Prepared(executor=executor, variants=variants)

    def _check(self, plan: Plan) -> None:
        try:
            check(plan, self.space)
        except PlanError as error:
            notes = [note for fragment in self.program.fragments for note in fragment.notes]
            told = f" ({'; '.join(notes)})" if "can run nothing" in str(error) and notes else ""
            raise PlanError(f"{error}{told}") from None

    def explain(self) -> str:
        """The plan in force, what led to it, what could not be captured."""
        lines = [render(self.plan, self.program.graph)]
        memory = self.memory
        lines.append(
            f"memory: {memory.weight_bytes / 1e6:.1f} MB weights,"
            f" {memory.region_bytes / 1e6:.1f} MB in compiled regions (modelled)"
        )
        if self.coverage is not None:
            lines.append(f"captured: {self.coverage:.1%} of the time of all calls")
        lines += [f"not captured: {line}" for line in self.program.uncaptured]
        lines += [f"note: {note}" for f in self.program.fragments for note in f.notes]
        refused = [(what, why) for v in self._variants for what, why in v.refusals.items()]
        lines += [f"note: calls of {what} run eagerly: {why}" for what, why in refused]
        lines += [f"quarantined: {n}: {why}" for n, why in self._pool.quarantined.items()]
        if self._audit.checked:
            lines.append(
                f"live calls checked: {self._audit.checked},"
                f" worst error {self._audit.worst_error:.1g}"
            )
        lines += map(str, list(self.decisions))
        return "\n".join(lines)

    def watch_live(self, on: bool) -> None:
        """Whether a share of live calls is checked against the model; on after every swap."""
        self._audit.watch(on)

    def settle(self, timeout_s: float | None = None) -> bool:
        """Waits until nothing is being built in the background; False if it takes longer."""
        return self._background.settle(timeout_s)

    def close(self) -> None:
        """Back to eager; engines and threads end. The model can still be called."""
        with self._swapping:
            self._closed = True
            self._to_eager()
            self._shelf.clear()
        if self._loop is not None:
            self._loop.close()
        self._background.settle()
        self._background.close()
        if self._owns_pool:
            self._pool.close()

    def _after_fork(self) -> None:
        """In a child process threads, locks and sessions of the parent are of no use."""
        self._closed = True
        self._active, self._variants, self._loop = self._eager, (), None
        self._swapping, self._exchanging = threading.RLock(), threading.Lock()
        self._background, self._owns_pool = Background(), False

    def __enter__(self) -> "Runtime":
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    def _eager_executor(self) -> EagerExecutor:
        def refuse(args: tuple[Any, ...], kwargs: dict[str, Any], error: Exception) -> Any:
            first = self.program.by_name.get("")
            return first and explain_refusal(first, args, kwargs, error)

        captured_whole = "" in self.program.by_name
        tallies = None if captured_whole else self._tallies
        forward = getattr(self.program.eager, "forward", self.program.eager)
        names = list(inspect.signature(forward).parameters)
        plan = whole(self.program.graph)
        return EagerExecutor(plan, self.program.eager, refuse, names, self._key_of, tallies)

    def _key_of(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Key | None:
        """What a call looks like, if the model was captured whole."""
        whole_model = self.program.by_name.get("")
        leaves = None if whole_model is None else whole_model.form.leaves(args, kwargs)
        return None if leaves is None else key_of(leaves)

    def _build(self, plan: Plan) -> tuple[Executor, tuple[Variants, ...]]:
        """An executor whose builds for the example's signature are made and verified."""
        if plan == self._eager.plan:
            return self._eager, ()
        built = []
        for fragment in self.program.fragments:
            variants = Variants(fragment, fragment_regions(plan, fragment), self._shop)
            self._built.add(variants)
            reuse = [v for old in self._variants for v in old.built]
            key = key_of(fragment.example)
            if key is None:
                raise PlanError("the example inputs need gradients: only the eager plan can serve")
            variants.build_own(fragment.example, key, reuse)
            built.append(variants)
        executors = {v.fragment.name: v.executor for v in built}
        if self.program.skeleton is None:
            return WholeExecutor(plan, executors[""], self._audit), tuple(built)
        in_parts = PartialExecutor(
            plan, executors, self.program.skeleton, self._tallies, self._audit, self._broken
        )
        eager, example = self.program.eager, self.program.example
        verify_parts(eager, in_parts.shell, example, self.tolerance)
        return in_parts, tuple(built)

    def _put_in_force(
        self,
        executor: Executor,
        variants: tuple[Variants, ...],
        instead_of: Plan | None = None,
        kept: tuple[Variants, ...] = (),
    ) -> bool:
        """Unless it is only to take the place of a plan that is no longer in force. What is not
        kept is freed."""
        with self._exchanging:
            before, old = self._active, self._variants
            if instead_of is not None and before.plan != instead_of:
                return False
            self._active, self._variants = executor, variants
        self._audit.watch(not isinstance(executor, EagerExecutor))
        for current in variants:
            current.revive()
        gone = [v for v in old if v not in variants]
        for variants_before in gone:
            variants_before.retire()
        releases = [v.release for v in gone if v not in kept]
        if releases:
            self._background.let_go(before.in_flight, releases)
        return True

    def _to_eager(self, instead_of: Plan | None = None) -> bool:
        done = self._put_in_force(self._eager, (), instead_of)
        if done:
            self._in_force, self._trial = Prepared(executor=self._eager, variants=()), None
        return done

    @contextmanager
    def _room(self, fragment: Fragment, regions: Sequence[Region]) -> Iterator[None]:
        """While regions are built their bytes are spoken for; MemoryLimitError if too many."""
        limit = self.objective.memory_limit
        need = 0 if limit is None else self._need(fragment, regions)
        if limit is not None and self._held(need) > limit:
            self._shelf.clear()
            self._background.settle(SETTLE_S)  # what is on its way out may make the room
        with self._exchanging:
            total = self._held(need)
            if limit is not None and total > limit:
                raise MemoryLimitError(
                    f"the limit is {limit / 1e6:.0f} MB; while this plan is built"
                    f" {total / 1e6:.0f} MB would be held"
                )
            self._spoken_for += need
        try:
            yield
        finally:
            with self._exchanging:
                self._spoken_for -= need

    def _held(self, need: int) -> int:
        return self.memory.total_bytes + self._spoken_for + need

    def _need(self, fragment: Fragment, regions: Sequence[Region]) -> int:
        need = 0
        ready = {r for v in self._variants for built in v.built for r in built.regions}
        for region in [region for region in regions if region not in ready]:
            backend, order = order_for(fragment, region, self._pool.get(region.engine))
            need += backend.held_bytes(order)
        return need

    def _as_captured(self) -> bool:
        return all(fragment.watch.unchanged() for fragment in self.program.fragments)

    def _renew_weights(self) -> None:
        """Look at the weights again if they are no longer those captured."""
        if self._as_captured():
            return
        fragments = tuple(fragment.rebound() for fragment in self.program.fragments)
        self.program = replace(self.program, fragments=fragments)
        self._shelf.clear()

    def _weights_changed(self) -> None:
        """Calls run eagerly, on the new weights, until the plan is built anew from them."""
        plan, swaps = self.plan, self._swaps
        if plan != self._eager.plan and self._to_eager(instead_of=plan):
            self._shelf.clear()
            self._renewal.begin(
                lambda: self._swap_unless_overtaken(plan, "weights changed", swaps),
                lambda: self._swaps != swaps or self._closed,
            )

    def _swap_unless_overtaken(self, plan: Plan, reason: str, swaps: int) -> None:
        """What somebody else has swapped to meanwhile stands."""
        with self._swapping:
            if self._swaps == swaps and not self._closed:
                self._swap(plan, reason)

    def _failed(self, variants: Variants, region: Region, error: Exception) -> None:
        """A step raised; the call is being run again eagerly. Later calls avoid the culprit."""
        with self._exchanging:
            self.faults[region.engine] = self.faults.get(region.engine, 0) + 1
        plan = self.plan
        if variants not in self._variants:
            return
        if not self._to_eager(instead_of=plan):
            return
        text = f"{type(error).__name__}: {str(error)[:200]}"
        self._decide(plan, f"region {region.name} failed on {region.engine}", text)
        if region.engine == CALLER:
            return
        self._pool.quarantine(region.engine, text)
        moved = tuple(
            replace(r, engine=CALLER) if r.engine == region.engine else r for r in plan.regions
        )
        reason = f"engine {region.engine} is quarantined"
        swaps, instead = self._swaps, Plan(regions=moved)
        self._background.submit(lambda: self._swap_unless_overtaken(instead, reason, swaps))

    def _broken(
        self, plan: Plan, args: tuple[Any, ...], kwargs: dict[str, Any], error: Exception
    ) -> Any:
        """The model's own code failed around captured parts. If it does not by itself, the plan is
        at fault."""
        result = self._eager(args, kwargs)
        self._to_eager(instead_of=plan)
        text = f"{type(error).__name__}: {str(error)[:200]}"
        self._decide(plan, "the model's own code failed around captured parts", text)
        return result

    def _caught(self, plan: Plan, difference: VerifyError) -> None:
        """A live call's result differed: the plan that gave it must not serve."""
        self._to_eager(instead_of=plan)
        self._decide(plan, "a live call was checked", f"rolled back: {difference}")

    def _let_go(self, prepared: Prepared) -> None:
        self._background.let_go(prepared.executor.in_flight, [prepared.release])

    def _decide(
        self,
        plan: Plan,
        reason: str,
        outcome: str,
        predicted_gain: float | None = None,
        measured_gain: float | None = None,
    ) -> None:
        at_s = monotonic() - self._start_s
        name = plan.fingerprint if isinstance(plan, Plan) else "no plan"
        decision = Decision(
            at_s=at_s,
            plan=name,
            reason=reason,
            outcome=outcome,
            predicted_gain=predicted_gain,
            measured_gain=measured_gain,
        )
        self.decisions.append(decision)


def _gain(old_s: float | None, new_s: float | None) -> float | None:
    return old_s / new_s if old_s and new_s else None


def _end(background: Background, pool: EnginePool | None) -> None:
    """For a runtime that nobody closed and nobody can call any more."""
    background.stop()
    if pool is not None:
        threading.Thread(target=pool.close, daemon=True).start()  # this may be one of its threads


def _after_fork() -> None:
    for runtime in list(_RUNTIMES):
        runtime._after_fork()


_RUNTIMES: WeakSet[Runtime] = WeakSet()
os.register_at_fork(after_in_child=_after_fork)
