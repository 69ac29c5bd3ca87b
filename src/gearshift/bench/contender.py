"""One contender in a process of its own: `python -m gearshift.bench.contender`.

Says a word once its libraries are loaded; reads what to be from the first line, then a number of
seconds a line: runs the model for so long and answers with what it took; or a word for something
else to be from here on. Must not know who else is measured.
"""

import ctypes
import json
import os
import signal
import sys
import threading
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from time import perf_counter
from typing import Any

import psutil
import torch
from torch.utils import _pytree as pytree

from gearshift.act.verify import error_between
from gearshift.bench.models import SIZES
from gearshift.capture.load import load
from gearshift.decide.regions.forming import Forming

CHECK_EVERY = 16
OTHER_SIZES, BUILD, REST = "other sizes", "build", "rest"
PR_SET_PDEATHSIG = 1
MODEL_FILE = "model.onnx"
THRESHOLD = Forming().performance_threshold
Call = Callable[..., Any]


def _as_before(word: str) -> None:
    """There is nothing else to be."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Opened:
    """A model, ready to be called."""

    call: Call
    plan: Callable[[], str] = str
    """What a call runs on now; empty for one that never changes."""
    tell: Callable[[], dict[str, Any]] = dict
    """What else there is to tell with each answer."""
    become: Callable[[str], None] = _as_before


def main() -> None:
    """A stopped process would outlive a benchmark that was killed: this one goes with it."""
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    answers, sys.stdout = sys.stdout, sys.stderr  # a model or a library may print

    def say(answer: dict[str, Any]) -> None:
        print(json.dumps(answer), file=answers, flush=True)

    say({"arrived": True})
    order = json.loads(sys.stdin.readline() or "null")
    if order is not None:
        torch.manual_seed(0)
        with torch.no_grad():
            serve(order, say)


def serve(order: Any, say: Callable[[dict[str, Any]], None]) -> None:
    """Until nobody speaks to it any more."""
    model, args = loaded(order)
    expected, fresh = model(*args), order["cold"]
    start_s = perf_counter()
    opened = KINDS[order["kind"]](model, args, order)
    for _ in range(order["warm_up"]):
        opened.call(*args)
    say({"ready_s": perf_counter() - start_s, "batch": batch_of(args)})
    for line in sys.stdin:
        word = line.strip()
        if word == OTHER_SIZES:
            args = SIZES[order["model"]][1]()
            expected, fresh = model(*args), order["cold"]
        elif word in (BUILD, REST):
            opened.become(word)
        else:
            answer = run(opened, args, expected, float(line), from_the_first=fresh)
            fresh = False
            say({**answer, **opened.tell()})


def loaded(order: Any) -> tuple[Any, tuple[Any, ...]]:
    """The model, and what it is called with."""
    model, example = load(order["instead"] or order["model"])
    if order["sizes"] is not None:
        return model, SIZES[order["model"]][order["sizes"]]()
    return model, tuple(example) if isinstance(example, tuple | list) else (example,)


def run(
    opened: Opened, args: Any, expected: Any, seconds: float, *, from_the_first: bool = False
) -> dict[str, Any]:
    """Calls one after the other; every so many of them compared with the model's own answer. The
    first one, after a pause, is not counted, for nobody, unless it is what is asked for."""
    call, plan = opened.call, opened.plan
    if not from_the_first:
        call(*args)
    call_s: list[float] = []
    at_s: list[float] = []
    plans: list[str] = []
    result, worst = expected, 0.0
    cpu_s = cpu_seconds()
    end_s = perf_counter() + seconds
    while (start_s := perf_counter()) < end_s:
        result = call(*args)
        call_s.append(perf_counter() - start_s)
        at_s.append(start_s)
        plans.append(plan())
        if len(call_s) % CHECK_EVERY == 0:
            worst = max(worst, difference(expected, result))
    used_s = cpu_seconds() - cpu_s
    worst = max(worst, difference(expected, result))
    told = {"call_s": call_s, "at_s": at_s, "plans": plans}
    return {**told, "cpu_s": used_s, "max_error": worst}


def batch_of(args: Any) -> int | None:
    tensors = [leaf for leaf in pytree.tree_leaves(args) if isinstance(leaf, torch.Tensor)]
    return tensors[0].shape[0] if tensors and tensors[0].dim() else None


def difference(expected: Any, result: Any) -> float:
    wants, haves = (pytree.tree_leaves(answer) for answer in (expected, result))
    return max(error_between(want, have) for want, have in zip(wants, haves, strict=True))


def cpu_seconds() -> float:
    """Of this process and its children, those that have ended included."""
    me = psutil.Process()
    total_s = 0.0
    for process in (me, *me.children(recursive=True)):
        with suppress(psutil.NoSuchProcess):
            t = process.cpu_times()
            total_s += t.user + t.system + t.children_user + t.children_system
    return total_s


def eager(model: Any, args: Any, order: Any) -> Opened:
    if order["threads"]:
        torch.set_num_threads(order["threads"])
    return Opened(call=model)


def compiled(model: Any, args: Any, order: Any) -> Opened:
    if order["threads"]:
        torch.set_num_threads(order["threads"])
    return Opened(call=torch.compile(model))


def export(model: Any, args: Any, order: Any) -> Opened:
    """For all who run ONNX."""
    program = torch.onnx.export(model, args, dynamo=True, verbose=False)
    assert program is not None
    program.save(_file(order), external_data=False)
    return Opened(call=model)


def onnxruntime(model: Any, args: Any, order: Any) -> Opened:
    import onnxruntime as ort

    options = ort.SessionOptions()
    if order["threads"]:
        options.intra_op_num_threads = order["threads"]
    if order["spin"] is not None:
        options.add_session_config_entry("session.intra_op.allow_spinning", str(int(order["spin"])))
    session = ort.InferenceSession(_file(order), options, providers=["CPUExecutionProvider"])
    names = [value.name for value in session.get_inputs()]

    def call(*args: Any) -> Any:
        tensors = pytree.tree_leaves(args)
        feeds = {n: t.numpy() for n, t in zip(names, tensors, strict=True)}
        return [torch.from_numpy(array) for array in session.run(None, feeds)]

    return Opened(call=call)


def openvino(model: Any, args: Any, order: Any) -> Opened:
    import openvino as ov

    settings: dict[str, Any] = {"INFERENCE_PRECISION_HINT": "f32"}  # else bf16 where the CPU has it
    if order["threads"]:
        settings["INFERENCE_NUM_THREADS"] = order["threads"]
    core = ov.Core()
    built = core.compile_model(core.read_model(_file(order)), "CPU", settings)

    def call(*args: Any) -> Any:
        results = built([t.numpy() for t in pytree.tree_leaves(args)])
        return [torch.from_numpy(results[output]) for output in built.outputs]

    return Opened(call=call)


def gearshift(model: Any, args: Any, order: Any) -> Opened:
    return _adapting(model, args)


def unformed(model: Any, args: Any, order: Any) -> Opened:
    """The same, without regions formed anew."""
    return _adapting(model, args, threshold=0.0)


def _adapting(model: Any, args: Any, threshold: float = THRESHOLD) -> Opened:
    from gearshift.decide.regions.former import DIVIDED, MERGED
    from gearshift.runtime import adapt

    runtime = adapt(model, args, frozen=True, performance_threshold=threshold)

    def tell() -> dict[str, Any]:
        loop, decisions = runtime._loop, runtime.decisions
        formed = [d for d in decisions if d.serves and d.reason.startswith((DIVIDED, MERGED))]
        return {
            "decisions": [str(decision) for decision in decisions],
            "formed": [str(decision) for decision in formed],
            "under_way": loop is not None and loop.changeover.under_way,
        }

    return Opened(call=runtime, plan=lambda: runtime.running, tell=tell)


def with_one_plan(model: Any, args: Any, policy: str) -> Opened:
    """The runtime on a plan asked for by hand: the loop looks on, if there is one."""
    from gearshift.plan import Rewrite
    from gearshift.plan.plan import whole
    from gearshift.runtime import adapt

    runtime = adapt(model, args, policy=policy)
    rewrite = Rewrite(backend="onnxruntime", threads=runtime.space.max_threads)
    runtime.swap(whole(runtime.program.graph, rewrite=rewrite))
    return Opened(call=runtime)


@dataclass(slots=True)
class Repeated:
    """Work that a thread of its own does over and over while it is wanted."""

    work: Callable[[], None]
    _wanted: threading.Event = field(default_factory=threading.Event)
    _busy: threading.Lock = field(default_factory=threading.Lock)

    def start(self) -> None:
        threading.Thread(target=self._repeat, daemon=True).start()

    def become(self, word: str) -> None:
        """At rest once what is under way is done."""
        if word == BUILD:
            self._wanted.set()
        else:
            self._wanted.clear()
            with self._busy:
                pass

    def _repeat(self) -> None:
        while self._wanted.wait():
            with self._busy:
                if self._wanted.is_set():
                    self.work()


def building(model: Any, args: Any, order: Any) -> Opened:
    """The runtime on one thread of one core, where a plan is built over and over in the background
    while that is asked for."""
    from gearshift.plan import Rewrite
    from gearshift.plan.plan import whole
    from gearshift.runtime import adapt

    runtime = adapt(model, args, policy="keep")
    background, graph = runtime._background, runtime.program.graph
    runtime.swap(whole(graph, rewrite=Rewrite(backend="onnxruntime", threads=1)))
    other = whole(graph, rewrite=Rewrite(backend="openvino", threads=1))

    built_s: list[float] = []
    threads: list[int] = []

    def build() -> None:
        runtime._serving.let_go(runtime.prepare(other))
        built_s.append(perf_counter())

    def build_and_wait() -> None:
        background.submit(build)
        runtime.settle()

    repeated = Repeated(build_and_wait)
    repeated.start()
    background.submit(lambda: threads.append(threading.get_native_id()))
    runtime.settle()  # now the background has its thread, which is not pinned with this one
    os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})

    def tell() -> dict[str, Any]:
        return {
            "builds": len(built_s),
            "cores": sorted(os.sched_getaffinity(0)),
            "background_cores": sorted(os.sched_getaffinity(threads[0])),
        }

    return Opened(call=runtime, tell=tell, become=repeated.become)


def watched(model: Any, args: Any, order: Any) -> Opened:
    return with_one_plan(model, args, "bandit")


def unwatched(model: Any, args: Any, order: Any) -> Opened:
    return with_one_plan(model, args, "keep")


def _file(order: Any) -> str:
    return str(Path(order["folder"]) / MODEL_FILE)


KINDS: dict[str, Callable[[Any, Any, Any], Opened]] = {
    "eager": eager,
    "torch.compile": compiled,
    "export": export,
    "onnxruntime": onnxruntime,
    "openvino": openvino,
    "gearshift": gearshift,
    "unformed": unformed,
    "watched": watched,
    "unwatched": unwatched,
    "building": building,
}

if __name__ == "__main__":
    main()
