"""What the runtime itself costs on a call, and how near a plan comes to its backend by hand.

The null backend computes nothing, so all that is left is the runtime's own way of a call.
"""

import statistics
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from pathlib import Path
from tempfile import TemporaryDirectory
from time import perf_counter
from typing import Any

import torch
from torch import nn

from gearshift.act.backends import BACKENDS, NullBackend, Order, register
from gearshift.act.backends.onnxruntime import open_session, weight_arrays
from gearshift.act.backends.openvino import compile_model
from gearshift.act.compile import concrete
from gearshift.act.measure import take_turns
from gearshift.act.verify import Tolerance
from gearshift.bench.arena import Contender, Setting
from gearshift.decide.keep import Keep
from gearshift.ir.topology import CALLER
from gearshift.plan import Plan, Region, Rewrite
from gearshift.plan.plan import whole
from gearshift.runtime import Runtime, adapt
from gearshift.zoo import ZOO

CALLS, ROUNDS = 200, 15
NUM_REGIONS = 21
SLICE_S, SETTLE_S = 1.0, 10.0
"""What is done once on a machine, such as measuring its roofline, is over by then."""
UNVERIFIED = Tolerance(single=float("inf"), double=float("inf"), half=float("inf"), region=1.0)


def chain() -> nn.Module:
    """So many small ops that each can be a region of its own."""
    return nn.Sequential(*(nn.Linear(8, 8) for _ in range(NUM_REGIONS))).eval()


def measure(models: Sequence[str], seconds: float) -> dict[str, Any]:
    cases = [*runtime_cases(models), *direct_cases(models, seconds)]
    cases += [monitoring_case(name, seconds) for name in models]
    watched = [case["vs_unwatched"] for case in cases if "vs_unwatched" in case]
    per_region = [case["per_region_s"] for case in cases if "per_region_s" in case]
    ratios = [case["vs_direct"] for case in cases if "vs_direct" in case]
    return {
        "cases": cases,
        "summary": {
            "per_region_s": max(per_region),
            "vs_direct_geometric_mean": statistics.geometric_mean(ratios) if ratios else None,
            "vs_direct_minimum": min(ratios, default=None),
            "vs_unwatched_geometric_mean": statistics.geometric_mean(watched) if watched else None,
        },
    }


def runtime_cases(models: Sequence[str]) -> list[dict[str, Any]]:
    """Seconds of a call that computes nothing: one region of each model, then many regions."""
    register(NullBackend())
    try:
        return [_one_region(name) for name in models] + [_many_regions()]
    finally:
        del BACKENDS[NullBackend.name]


def _one_region(name: str) -> dict[str, Any]:
    model, example = ZOO[name]()
    with adapt(model, example, tolerance=UNVERIFIED, policy=Keep.name) as runtime:
        graph = runtime.program.graph
        runtime.swap(whole(graph, rewrite=Rewrite(backend=NullBackend.name)))
        num_weights = sum(1 for _ in (*model.parameters(), *model.buffers()))
        call_s = _call_s(runtime, example)
        return {"case": {"model": name, "regions": 1, "weights": num_weights}, "call_s": call_s}


def _many_regions() -> dict[str, Any]:
    example = (torch.randn(2, 8),)
    rewrite = Rewrite(backend=NullBackend.name)
    with adapt(chain(), example, tolerance=UNVERIFIED, policy=Keep.name) as runtime:
        graph = runtime.program.graph
        runtime.swap(whole(graph, rewrite=rewrite))
        one_s = _call_s(runtime, example)
        single = tuple(Region(ops=(op.name,), rewrite=rewrite) for op in graph.ops)
        runtime.swap(Plan(regions=single))
        many_s = _call_s(runtime, example)
    return {
        "case": {"model": "chain", "regions": NUM_REGIONS, "weights": 2 * NUM_REGIONS},
        "call_s": many_s,
        "one_region_s": one_s,
        "per_region_s": (many_s - one_s) / (NUM_REGIONS - 1),
    }


def _call_s(runtime: Runtime, example: tuple[Any, ...]) -> float:
    """Median over rounds of the mean over calls; live checks are off, they are measured apart."""
    runtime.watch_live(False)
    rounds = []
    for _ in range(ROUNDS):
        start_s = perf_counter()
        for _ in range(CALLS):
            runtime(*example)
        rounds.append((perf_counter() - start_s) / CALLS)
    return statistics.median(rounds)


def direct_cases(models: Sequence[str], seconds: float) -> list[dict[str, Any]]:
    """Each backend as a one-region plan, in turns with that backend called by hand."""
    cases = []
    for name in models:
        model, example = ZOO[name]()
        with adapt(model, example, policy=Keep.name) as runtime:
            for rewrite in runtime.space.rewrites:
                if rewrite.backend not in ("eager", "inductor") and not rewrite.spin:
                    cases.append(_direct_case(runtime, name, rewrite, example, seconds))
    return cases


def _direct_case(
    runtime: Runtime, name: str, rewrite: Rewrite, example: tuple[Any, ...], seconds: float
) -> dict[str, Any]:
    runtime.swap(whole(runtime.program.graph, rewrite=rewrite))
    runtime.watch_live(False)
    direct = _direct_call(runtime, rewrite, example)
    latencies = take_turns({"plan": lambda: runtime(*example), "direct": direct}, seconds)
    plan_s, direct_s = (statistics.median(latencies[key]) for key in ("plan", "direct"))
    return {
        "case": {"model": name, "rewrite": str(rewrite)},
        "gearshift_s": plan_s,
        "direct_s": direct_s,
        "vs_direct": direct_s / plan_s,
    }


def monitoring_case(name: str, seconds: float) -> dict[str, Any]:
    """The same plan with the loop and its process looking on, and without, in processes of their
    own and slices in turns."""
    calls: dict[str, list[float]] = {"watched": [], "unwatched": []}
    with ExitStack() as stack:
        folder = Path(stack.enter_context(TemporaryDirectory(prefix="gearshift-")))
        contenders = {kind: Contender(name, Setting(kind=kind), folder) for kind in calls}
        for contender in contenders.values():
            stack.callback(contender.close)
            contender.arrive()
        for contender in contenders.values():
            contender.open()
            contender.run(SETTLE_S)
        for turn in range(2 * max(2, round(seconds / SLICE_S))):
            for kind in sorted(contenders, reverse=turn % 2 == 0):
                calls[kind] += contenders[kind].run(SLICE_S)["call_s"]
    watched_s, unwatched_s = (statistics.fmean(calls[kind]) for kind in ("watched", "unwatched"))
    return {
        "case": {"model": name, "monitoring": True},
        "watched_s": watched_s,
        "unwatched_s": unwatched_s,
        "vs_unwatched": unwatched_s / watched_s,
    }


def _direct_call(runtime: Runtime, rewrite: Rewrite, example: tuple[Any, ...]) -> Callable[[], Any]:
    """The same model and settings, by the backend's own means: numpy arrays in and out."""
    (fragment,) = runtime.program.fragments
    assert fragment.onnx is not None
    ops = tuple(op.name for op in fragment.graph.ops)
    engine = runtime.open_engine(CALLER)
    shapes, sizes = concrete(fragment, [Region(ops=ops)], example)
    order = Order(fragment=fragment, ops=ops, rewrite=rewrite, engine=engine.spec)
    body = fragment.onnx.cut(ops, shapes, sizes).body
    arrays = [tensor.numpy() for tensor in example]
    if rewrite.backend == "onnxruntime":
        session = open_session(order, body)
        feeds = {i.name: a for i, a in zip(session.get_inputs(), arrays, strict=True)}
        return lambda: session.run(None, feeds)
    weights = weight_arrays(order, body)
    request = compile_model(order, body, weights).create_infer_request()
    return lambda: (request.infer(dict(enumerate(arrays))), weights)
