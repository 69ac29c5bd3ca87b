"""What the loop may do to a runtime: adopt a plan, try one beside another, have one ready.

A recipe: the loop decides what, the runtime knows how.
"""

import logging
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict
from functools import partial
from time import perf_counter
from typing import TYPE_CHECKING
from weakref import ref

import torch
from torch import Tensor

from gearshift import settings
from gearshift.act.background import Background
from gearshift.act.changes import Changes
from gearshift.act.executor import Timing, drained, key_of, outer_key
from gearshift.act.labels import signature_text, size_number
from gearshift.act.layers import layers_of
from gearshift.act.measure import measure
from gearshift.act.openmp import sparing
from gearshift.capture.calls import own_copy
from gearshift.decide.bandit import Bandit
from gearshift.decide.control import ChildProcess
from gearshift.decide.guard import Guard, Limits
from gearshift.decide.keep import Keep
from gearshift.decide.messages import Hello
from gearshift.decide.policy import POLICIES, PPO, SPLITTING, Proposal
from gearshift.decide.regions.forming import Forming
from gearshift.decide.reward import Costs, reward
from gearshift.decide.split.actions import NUM_ENGINES, SPLITS
from gearshift.decide.split.sight import Subject
from gearshift.errors import CompileError, GearshiftError, UsageError, VerifyError
from gearshift.hands import Done, Gone, Refusal
from gearshift.ir.measurement import Measurement, Metric
from gearshift.ir.pieces import Piece, pieces_of
from gearshift.ir.region import identity
from gearshift.ir.snapshot import LayerSeen
from gearshift.ir.work import boundary_bytes, heaviest
from gearshift.loop import Loop
from gearshift.observe.hal import open_hal
from gearshift.observe.sampler import ENERGY, OTHERS, RUN_DELAY, Sampler
from gearshift.observe.store import FILE, machine_key, versions_key
from gearshift.plan.legal import Space, candidates, why_illegal
from gearshift.plan.plan import Plan
from gearshift.plan.rewrite import why_illegal as why_not_compiled
from gearshift.plan.split import Split, single_cores
from gearshift.predict.table import Table
from gearshift.rehearsal import rehearse

if TYPE_CHECKING:
    from gearshift.runtime import Runtime

log = logging.getLogger("gearshift")

PIECE_LEVELS = 4
"""So deep regions are looked into."""
MEASURE_S = 0.05
"""So long a region is timed by itself, beside the calls."""
NAMES = {
    OTHERS: "others' share of the cores",
    RUN_DELAY: "our run delay",
    "memory.dram_bytes_s": "memory traffic",
    "cache.l1_hit_share": "L1 hits",
    "cache.l2_hit_share": "L2 hits",
    "cache.l3_hit_share": "L3 hits",
}


def open_control(policy: str) -> ChildProcess | None:
    """None if nothing is to be decided."""
    if policy not in POLICIES:
        raise UsageError(f"policy={policy!r}: there are {', '.join(POLICIES)}")
    return None if policy == Keep.name else ChildProcess()


def open_loop(
    runtime: "Runtime",
    changes: Changes,
    background: Background,
    control: ChildProcess,
    policy: str,
    limits: Limits,
    forming: Forming,
) -> Loop:
    known = (settings.home() / FILE).exists()  # before the child makes it
    space = runtime.space
    splits = SPLITS if policy in SPLITTING else (Split(),)
    plans = candidates(space, splits, forming.initial_granularity)
    graph = space.graph
    key = {
        "machine": machine_key(),
        "versions": versions_key(),
        "graph": identity(graph, [op.name for op in graph.ops]),
    }
    signature = _signature(runtime)
    control.greet(
        Hello(
            policy=policy,
            plans=plans,
            num_cores=space.usable_cores,
            objective=runtime.objective,
            home=str(settings.home()),
            key=key,
            identities={
                fingerprint: {region.name: identity(graph, region.ops) for region in plan.regions}
                for fingerprint, plan in plans.items()
            },
            subject=subject_of(runtime, space),
            pieces=pieces_here(runtime, space),
            signature=signature,
            forming=forming,
            stacks=space.stacks,
        )
    )
    hands = RuntimeHands(runtime, space, changes, background)
    costs = Costs(runtime.objective, space.usable_cores)
    loop = Loop(
        sampler=Sampler(open_hal(), space.max_threads, signature=signature),
        control=control,
        guard=Guard(
            Table(space.usable_cores), plans, costs, limits, capture_s=runtime.program.capture_s
        ),
        hands=hands,
    )
    try:
        if known or limits.setup_s:
            loop.look_around()
        if known:
            loop.recall()
        if limits.setup_s and policy in (Bandit.name, PPO) and hands.can_play:
            rehearse(loop, plans.values(), limits.setup_s)
    except Exception:  # then plans are found while calls flow; a bug is shown, not swallowed
        log.exception("what could be known before the first call is not")
    except BaseException:
        loop.sampler.close()
        raise
    loop.start()
    return loop


def _signature(runtime: "Runtime") -> str | None:
    """Of the example: what calls will be like."""
    program = runtime.program
    whole = program.by_name.get("")
    key = outer_key(*program.example) if whole is None else key_of(whole.example)
    return None if key is None else signature_text(key)


def subject_of(runtime: "Runtime", space: Space) -> Subject | None:
    """None where the model cannot be divided over two engines by what reads ONNX."""
    whole = runtime.program.by_name.get("")
    cores = single_cores(space)
    key = None if whole is None else key_of(whole.example)
    if whole is None or whole.onnx is None or key is None or len(cores) < NUM_ENGINES:
        return None
    work = runtime._labels.of(key).work
    tensors = [leaf for leaf in whole.example if isinstance(leaf, Tensor) and leaf.dim()]
    if work is None or not tensors:
        return None
    graph, size = whole.graph, partial(size_number, bound=whole.sizes.bind(whole.example))
    try:
        op, (read_bytes, made_bytes) = heaviest(graph, size), boundary_bytes(graph, size)
    except ValueError:  # a size that is not known before the call
        return None
    return Subject(
        engines=(cores[0], cores[1]),
        kind=op.kind,
        dims=op.dims,
        num_rows=tensors[0].shape[0],
        flops=work.flops,
        moved_bytes=max(1.0, work.moved_bytes),
        item_bytes=op.item_bytes,
        read_bytes=float(read_bytes),
        made_bytes=float(made_bytes),
    )


def pieces_here(runtime: "Runtime", space: Space) -> Piece | None:
    """What regions may be made of; None for a model in several parts, or of sizes not known."""
    whole = runtime.program.by_name.get("")
    if whole is None:
        return None
    size = partial(size_number, bound=whole.sizes.bind(whole.example))
    try:
        return pieces_of(space.graph, size, space.runnable, PIECE_LEVELS)
    except ValueError:
        return None


def explain(loop: Loop) -> list[str]:
    """What the loop sees."""
    seen = loop.seen
    if seen is None or seen.situation is None:
        return []
    told = [f"{NAMES[name]} {_text(name, m)}" for name, m in seen.readings.items() if name in NAMES]
    waits = [f"proposed, {loop.put_off}"] if loop.put_off else []
    return [f"situation: {seen.situation}", f"machine: {'; '.join(told)}", *waits]


def costs(loop: Loop) -> dict[str, str]:
    """What it takes to watch and to try, and how well the loop foresees."""
    seen, guard, answer = loop.seen, loop.guard, loop.answer
    if seen is None or seen.situation is None:
        return {}
    found: dict[str, str] = {}
    energy_j = guard.costs.energy_j(seen.situation, seen.plan)
    if energy_j is not None:
        found["energy"] = f"{energy_j:.3g} J a call ({seen.readings[ENERGY].source})"
    taken = guard.model.measured(seen.situation, seen.plan)
    if energy_j is not None and taken is not None:
        parts = reward(guard.costs.objective, latency_s=taken.mean_s, energy_j=energy_j)
        found["reward"] = f"{_named(asdict(parts))}, together {parts.total:.3g}"
    num_timed, rehearsed_s = loop.rehearsed
    if num_timed:
        found["rehearsal"] = f"{num_timed} plans in {rehearsed_s:.1f} s before the first call"
    if answer.reward:
        total, named = sum(answer.reward.values()), _named(answer.reward)
        chosen = "layers' settings" if answer.policy == PPO else "split"
        found[f"reward of the {chosen}"] = f"{named}, together {total:.3g}"
    lived_s = seen.at_s - loop.began_s
    if lived_s > 0:
        here, there = loop.cost_s / lived_s, answer.cpu_s / lived_s
        told = f"{here:.2%} of a core here, {there:.2%} in the control process"
        found["cost of monitoring"] = told
    budgeted_s = guard.capture_s + guard.served_s
    if budgeted_s > 0:
        share, most = guard.spent_s / budgeted_s, guard.limits.explore_share
        found["cost of trials"] = (
            f"{share:.2%} of the time of capture and all calls, at most {most:.0%}"
        )
        found["plans built"] = f"{guard.building_s:.1f} s beside calls"
        if guard.measuring_s:
            found["regions measured"] = f"{guard.measuring_s:.1f} s beside calls"
    if answer.checked:
        off = f"typically off by {answer.typical_error:.0%}"
        found["predictions"] = f"{answer.checked} compared with what was measured, {off}"
    if answer.store:
        found["store"] = answer.store
    return found


def _named(parts: Mapping[str, float]) -> str:
    return ", ".join(f"{name} {value:.3g}" for name, value in parts.items())


def _text(name: str, metric: Metric) -> str:
    if metric.value is None:
        return str(metric.source)
    value = f"{metric.value / 1e9:.2g} GB/s" if name.endswith("bytes_s") else f"{metric.value:.2g}"
    return f"{value} ({metric.source})"


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

    def note_neighbours(self, count: int) -> None:
        self._runtime._crowd.neighbours = count

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
        """A model with its own Python between its parts is run for its callers only, and so is one
        that a call would train."""
        whole = self._runtime.program.by_name.get("")
        return whole is not None and not whole.watch.training()

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
        args, kwargs = own_copy(runtime.program.example)
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
