"""adapt() and the Runtime: a model that can be called as before, and the plan it runs on.

A recipe: joins capture, plan and act. Knows how they fit, not how each works.
"""

import inspect
import threading
import warnings
from collections import deque
from collections.abc import Callable, Collection, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from time import perf_counter
from typing import Any
from weakref import finalize

from torch import nn
from torch.export import ExportedProgram

from gearshift import settings
from gearshift.act.assemble import assemble, eager_executor
from gearshift.act.audit import Audit
from gearshift.act.background import Background
from gearshift.act.changes import Changes
from gearshift.act.compile import held_bytes
from gearshift.act.engines import Engine
from gearshift.act.labels import Labels
from gearshift.act.mishaps import Mishaps
from gearshift.act.pool import EnginePool, open_pool
from gearshift.act.prepared import Prepared
from gearshift.act.room import Room, usual_limit
from gearshift.act.serving import Crowd, Serving
from gearshift.act.space import space_of
from gearshift.act.tally import Tallies
from gearshift.act.variants import Workshop
from gearshift.act.verify import Tolerance
from gearshift.adaptive import open_control, open_loop
from gearshift.capture.load import capture
from gearshift.capture.program import Fragment, Program
from gearshift.decide.control import ChildProcess
from gearshift.decide.guard import Limits
from gearshift.decide.regions.forming import Forming
from gearshift.endings import watch_over
from gearshift.errors import EngineError, PlanError
from gearshift.ir.measurement import Memory
from gearshift.loop import Loop
from gearshift.observe.store import cpu_quota
from gearshift.plan import Objective, Plan, Region, Space, check
from gearshift.plan.decision import TRIAL, Decision
from gearshift.plan.plan import ordered
from gearshift.tell import explained, story_of, write
from gearshift.view.report import page

SETTLE_S = 10.0
FORMING = Forming()


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
    frozen: bool = False,
    initial_granularity: int = FORMING.initial_granularity,
    performance_threshold: float = FORMING.performance_threshold,
    merging_threshold: float = FORMING.merging_threshold,
    rl_training_epochs: int = FORMING.rl_training_epochs,
) -> "Runtime":
    """A drop-in for `model`. Takes the seconds of an export and of a rehearsal, in which plans are
    timed on the example; the best serves from the first call, better ones as they are found while
    calls flow, or the one given to `swap`.

    `example_inputs` is a tensor, a tuple of positional arguments or a dict of keyword arguments.
    `model` may also be a built-in name, `module:factory`, `file.py:factory`, a .pt2 or .onnx file.
    `policy` decides: bandit, rules, proportional; share, greedy, dqn, which choose how the model is
    divided over two cores; ppo, which sets recurrent layers; or keep for a runtime that changes
    nothing by itself. `limits` bound what it may cost; with `Limits(setup_s=0)` nothing is timed
    before the first call. `frozen` promises that weights, modules, mode and hooks stay as they are,
    as an export does: else they are looked at before each call. The last four say how regions are
    formed while it serves: how many levels down the hierarchy they are at first, below which share
    of the roofline one is divided, above which share of their time what lies between two merges
    them, and how many lessons an agent takes from each measurement.
    """
    forming = Forming(
        initial_granularity=initial_granularity,
        performance_threshold=performance_threshold,
        merging_threshold=merging_threshold,
        rl_training_epochs=rl_training_epochs,
    )
    policy = policy or settings.policy()
    control = open_control(policy)
    try:
        program = capture(model, example_inputs, example_kwargs or {})
        program = program.frozen() if frozen else program
        for line in program.uncaptured:
            warnings.warn(f"not captured, runs as before: {line}", stacklevel=2)
        return Runtime(
            program,
            objective=objective or Objective(),
            engines=engines,
            tolerance=tolerance or Tolerance(),
            control=control,
            policy=policy,
            limits=limits or Limits(),
            forming=forming,
        )
    except BaseException:
        if control is not None:
            control.close()
        raise


class Runtime:
    """Calls go to the executor in force, taken by one reference; `swap` puts another there."""

    def __init__(
        self,
        program: Program,
        *,
        objective: Objective,
        engines: str | Sequence[str | Engine] | EnginePool,
        tolerance: Tolerance,
        control: ChildProcess | None,
        policy: str,
        limits: Limits,
        forming: Forming = FORMING,
    ) -> None:
        self.program, self.objective, self.tolerance = program, objective, tolerance
        self.policy = policy
        """Who decides."""
        self._pool = open_pool(engines)
        self._owns_pool = self._pool is not engines
        self.open_engine = self._pool.get
        self._background = Background()
        self._tallies = Tallies()
        self._labels = Labels(program.by_name.get(""))
        self._closed = False
        self._quota = cpu_quota()
        self._audit = Audit(
            self._background, tolerance, lambda plan, error: self._mishaps.caught(plan, error)
        )
        self._begin()
        self._room = Room(
            limit=objective.memory_limit or usual_limit(program.weight_bytes),
            weight_bytes=program.weight_bytes,
            make_room=self._make_room,
        )
        self._shop = Workshop(
            open_engine=self._pool.get,
            background=self._background,
            tolerance=tolerance,
            tallies=self._tallies,
            room=lambda fragment, regions, ready, leaves: self._room.take(
                lambda: self._need(fragment, regions, ready, leaves)
            ),
            count=self._room.count,
            weights_changed=self._mishaps.weights_changed,
            failed=self._mishaps.failed,
            labels=self._labels,
            others=self._crowd.others,
        )
        self._loop: Loop | None = None
        if control is not None and program.fragments:
            try:
                self._loop = open_loop(
                    self, self._changes, self._background, control, policy, limits, forming
                )
            except BaseException:
                _end(self._background, self._pool if self._owns_pool else None)
                raise
        elif control is not None:
            control.close()
        ending = finalize(self, _end, self._background, self._pool if self._owns_pool else None)
        ending.atexit = False
        watch_over(self)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        start_s = perf_counter()
        executor = self._serving.active
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
        return self._serving.active.plan

    @property
    def began_s(self) -> float:
        """When it was made: what the times of decisions count from."""
        return self._changes.start_s

    @property
    def trial(self) -> Plan | None:
        """The plan that takes turns with the one in force, if there is one."""
        trial = self._serving.trial
        return None if trial is None else trial.new.plan

    @property
    def running(self) -> str:
        """What a call runs on now, in a few words."""
        return TRIAL if self._serving.trial is not None else self.plan.summary

    @property
    def decisions(self) -> list[Decision]:
        """The last ones, in the order they were made."""
        return list(self._changes.decisions)

    @property
    def faults(self) -> dict[str, int]:
        """Failures survived, by engine."""
        return self._mishaps.faults

    @property
    def adapts(self) -> bool:
        """Whether plans change by themselves."""
        return self._loop is not None and not self._closed

    @property
    def space(self) -> Space:
        """What may be decided for this model on this machine."""
        return space_of(self.program, self._pool, self._quota)

    @property
    def memory(self) -> Memory:
        """Of the plan in force, of those being built, and of those not yet let go."""
        return Memory(weight_bytes=self.program.weight_bytes, region_bytes=self._room.region_bytes)

    @property
    def coverage(self) -> float | None:
        """The share of the time of all calls spent in captured regions; None before the first."""
        tally = self._tallies.sum()
        return 1 - tally.outside_s / tally.total_s if tally.total_s > 0 else None

    def swap(self, plan: Plan, reason: str = "asked for") -> None:
        """Build, verify, then serve on this plan, until another is asked for or `release` called.
        Calls go on meanwhile; raises and changes nothing if the plan is illegal, cannot be built,
        does not fit the memory limit, or is wrong."""
        self._changes.swap_by_hand(plan, reason)

    def release(self) -> None:
        """The plan in force, if it was asked for by hand, may be changed by the policy again."""
        self._changes.by_hand = False

    def prepare(self, plan: Plan) -> Prepared:
        """The plan checked, built and verified, ready to be called, but not in force."""
        with self._changes.building:
            if self._closed:
                raise EngineError("this runtime is closed; the model itself answers")
            if not self.program.fragments:
                raise PlanError(f"nothing was captured: {self.program.uncaptured[0]}")
            self._check(plan)
            if any(fragment.watch.training() for fragment in self.program.fragments):
                raise PlanError("the model is in training mode; call .eval() first")
            self._renew_weights()
            canonical = ordered(self.program.graph, plan.regions)
            if canonical == self._serving.eager.executor.plan:
                return self._serving.eager
            reuse = [variant for old in self._serving.variants for variant in old.built]
            broken = self._mishaps.broken
            return assemble(self.program, canonical, self._shop, self._audit, broken, reuse)

    def _check(self, plan: Plan) -> None:
        try:
            check(plan, self.space)
        except PlanError as error:
            notes = [note for fragment in self.program.fragments for note in fragment.notes]
            told = f" ({'; '.join(notes)})" if "can run nothing" in str(error) and notes else ""
            raise PlanError(f"{error}{told}") from None

    def explain(self) -> str:
        """The plan in force, who decides, what led to it, what could not be captured."""
        return explained(self)

    def remember(self, num_calls: int) -> None:
        """So many of the last calls are kept whole, for a trace; else a few hundred."""
        self._serving.recent = deque(self._serving.recent, maxlen=num_calls)

    def report(self, path: str | Path, *, model: str = "") -> None:
        """Writes what happened as one self-contained page; `model` is what to call it there."""
        write(Path(path), page(story_of(self, model)))

    def watch_live(self, on: bool) -> None:
        """Whether a share of live calls is checked against the model; on after every swap."""
        self._audit.watch(on)

    def settle(self, timeout_s: float | None = None) -> bool:
        """Waits until nothing is being built in the background; False if it takes longer."""
        return self._background.settle(timeout_s)

    def close(self) -> None:
        """Back to eager; engines and threads end. The model can still be called."""
        self._closed = True
        self._changes.end()
        if self._loop is not None:
            self._loop.close()
        self._background.settle()
        self._background.close()
        if self._owns_pool:
            self._pool.close()

    def after_fork(self) -> None:
        """In a child process threads, locks and sessions of the parent are of no use."""
        self._closed = True
        if self._loop is not None:
            self._loop.control.abandon()
        self._background = Background()
        self._owns_pool, self._loop = False, None
        self._begin()

    def before_exit(self, timeout_s: float) -> None:
        """What is being built is finished, for so long at most."""
        self._background.close(timeout_s)

    def __enter__(self) -> "Runtime":
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    def _begin(self) -> None:
        """On the model itself; nothing has changed yet."""
        self._crowd = Crowd(self._background)
        eager = eager_executor(self.program, self._tallies, self._labels, self._crowd.others)
        self._serving = Serving(eager, self._background, self._audit.watch)
        self._changes = Changes(self._serving, self.prepare, self._as_captured)
        self._mishaps = Mishaps(
            self._serving,
            self._changes,
            self._pool,
            self._background,
            lambda: [fragment.watch for fragment in self.program.fragments],
        )

    def _make_room(self) -> None:
        """What stands by goes, and what is on its way out is waited for."""
        with self._changes.lock:
            self._serving.shelf.free()
        self._background.settle(SETTLE_S)

    def _need(
        self,
        fragment: Fragment,
        regions: Sequence[Region],
        ready: Collection[Region],
        leaves: Sequence[Any] | None = None,
    ) -> int:
        missing = [region for region in regions if region not in ready]
        return sum(held_bytes(fragment, r, self._pool.get(r.engine), leaves) for r in missing)

    def _as_captured(self) -> bool:
        return all(fragment.watch.unchanged() for fragment in self.program.fragments)

    def _renew_weights(self) -> None:
        """Look at the weights again if they are no longer those captured."""
        if self._as_captured():
            return
        fragments = tuple(fragment.rebound() for fragment in self.program.fragments)
        self.program = replace(self.program, fragments=fragments)
        with self._changes.lock:
            self._serving.shelf.clear()


def _end(background: Background, pool: EnginePool | None) -> None:
    """For a runtime that nobody closed and nobody can call any more."""
    background.stop()
    if pool is not None:
        threading.Thread(target=pool.close, daemon=True).start()  # this may be one of its threads
