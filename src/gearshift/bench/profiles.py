"""Records what the simulator is made of: real regions, each in every way that is legal for it.

Must not know the simulator's rules; it writes what was measured.
"""

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from statistics import median

from gearshift.bench.divided import Divided, block, divided
from gearshift.bench.parts import drawn, regions
from gearshift.decide.keep import Keep
from gearshift.decide.split.actions import ACTIONS, NAMES
from gearshift.runtime import adapt
from gearshift.sim.profiles import Parts, Profile

ROUNDS, CALLS = 6, 4
Done = dict[str, tuple[float, float]]
"""By engine, its share and how long it was at work."""
BATCHES = (1, 8)
BACKENDS = ("onnxruntime", "openvino")


def record(say: Callable[[str], None]) -> Iterator[Profile]:
    for name, make in regions(BATCHES).items():
        model, args = drawn(make)
        with adapt(model, args, policy=Keep.name) as runtime:
            for backend in BACKENDS:
                with divided(name, runtime, args, backend=backend, say=say) as region:
                    profile = _profile(region, backend)
                if profile is not None:
                    yield profile


def _profile(region: Divided, backend: str) -> Profile | None:
    """None if it cannot even run on one engine."""
    if NAMES[0] not in region.ready:
        return None
    took_s, parts = _in_turns(region)
    subject = region.subject
    weights = max(1, region.runtime.program.weight_bytes)
    splits = {}
    for action in ACTIONS:
        if action.member is None and action.name in region.ready:
            divides = action.split is not None
            busy_s = _busy_s(parts[action.name], subject.engines)
            whole_s = median(took_s[action.name])
            splits[action.name] = Parts(
                parts_s=(busy_s[0], busy_s[1]) if divides else (whole_s, whole_s),
                joined_s=max(0.0, whole_s - max(busy_s)) if divides else 0.0,
                link_share=subject.link_share(action.split),
                held_share=region.ready[action.name].held_bytes / weights,
            )
    return Profile(
        name=region.name,
        backend=backend,
        kind=subject.kind,
        dims=subject.dims,
        num_rows=subject.num_rows,
        flops=subject.flops,
        moved_bytes=subject.moved_bytes,
        item_bytes=subject.item_bytes,
        alone_s=median(took_s[NAMES[0]]),
        splits=splits,
    )


def _in_turns(region: Divided) -> tuple[dict[str, list[float]], dict[str, list[Done]]]:
    """What calls took by action, and who did what in them; a few at a time, so that a bad minute
    hits all alike."""
    took_s: dict[str, list[float]] = {name: [] for name in region.ready}
    parts: dict[str, list[Done]] = {name: [] for name in region.ready}
    for _ in range(ROUNDS):
        for name, prepared in region.ready.items():
            took_s[name] += block(partial(region.call, name), CALLS)
            ran = [timing.parts for timing in prepared.executor.timings()][-CALLS:]
            parts[name] += [next(iter(call.values()), {}) for call in ran]
    return took_s, parts


def _busy_s(calls: Sequence[Done], engines: Sequence[str]) -> list[float]:
    """Medians: how long each engine is at work."""
    return [median(call.get(engine, (0.0, 0.0))[1] for call in calls) for engine in engines]
