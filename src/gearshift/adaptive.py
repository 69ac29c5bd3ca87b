"""Opens both planes of a runtime that adapts, and tells what its loop sees and costs.

A recipe: wires parts, decides nothing.
"""

import logging
from collections.abc import Mapping
from dataclasses import asdict
from functools import partial
from typing import TYPE_CHECKING

from gearshift import settings
from gearshift.act.background import Background
from gearshift.act.changes import Changes
from gearshift.act.executor import key_of, outer_key
from gearshift.act.labels import signature_text, size_number
from gearshift.busy import ARITHMETIC, Neighbour, busy
from gearshift.decide.bandit import Bandit
from gearshift.decide.control import ChildProcess
from gearshift.decide.guard import Guard, Limits
from gearshift.decide.keep import Keep
from gearshift.decide.messages import Hello
from gearshift.decide.policy import POLICIES, PPO, SPLITTING
from gearshift.decide.regions.forming import Forming
from gearshift.decide.reward import Costs, reward
from gearshift.decide.split.actions import NUM_ENGINES, SPLITS
from gearshift.decide.split.sight import Subject
from gearshift.errors import UsageError
from gearshift.ir.measurement import Metric
from gearshift.ir.pieces import Piece, pieces_of
from gearshift.ir.region import identity
from gearshift.ir.work import boundary_bytes, heaviest
from gearshift.loop import Loop
from gearshift.observe.hal import open_hal
from gearshift.observe.sampler import ENERGY, OTHERS, RUN_DELAY, Sampler
from gearshift.observe.store import FILE, machine_key, versions_key
from gearshift.plan.legal import Space, candidates
from gearshift.plan.split import Split, single_cores
from gearshift.predict.table import Table
from gearshift.rehearsal import rehearse
from gearshift.runtime_hands import RuntimeHands

if TYPE_CHECKING:
    from gearshift.runtime import Runtime

log = logging.getLogger("gearshift")

PIECE_LEVELS = 4
"""So deep regions are looked into."""
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
            Table(space.usable_cores), plans, costs, limits, before_s=runtime.program.capture_s
        ),
        hands=hands,
    )
    try:
        if known or limits.setup_s:
            loop.look_around()
        if known:
            loop.recall()
        if limits.setup_s and policy in (Bandit.name, PPO) and hands.can_play:
            crowded = space.usable_cores > 1
            stand_in = partial(busy, (Neighbour(kind=ARITHMETIC, core=None),)) if crowded else None
            rehearse(loop, plans.values(), limits.setup_s, stand_in=stand_in)
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
    num_rows = space.count_rows()
    if work is None or not num_rows:
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
        num_rows=num_rows,
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
    spare = loop.sampler.spare_core
    apart = (
        [] if spare is None else [f"core {spare}: left to the calling thread, others use it least"]
    )
    waits = [f"proposed, {loop.put_off}"] if loop.put_off else []
    return [f"situation: {seen.situation}", f"machine: {'; '.join(told)}", *apart, *waits]


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
        here = loop.cost_s / lived_s
        there = (answer.cpu_s - loop.before_cpu_s) / lived_s
        told = f"{here:.2%} of a core here, {there:.2%} in the control process"
        found["cost of monitoring"] = told
    budgeted_s = guard.before_s + guard.served_s
    if budgeted_s > 0:
        share, most = guard.spent_s / budgeted_s, guard.limits.explore_share
        found["cost of trials"] = (
            f"{share:.2%} of the time of capture, rehearsal and all calls, at most {most:.0%}"
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
    return ", ".join(f"{name} {value:z.3g}" for name, value in parts.items())


def _text(name: str, metric: Metric) -> str:
    if metric.value is None:
        return str(metric.source)
    value = f"{metric.value / 1e9:.2g} GB/s" if name.endswith("bytes_s") else f"{metric.value:.2g}"
    return f"{value} ({metric.source})"
