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
from pathlib import Path
from time import perf_counter
from typing import Any

import psutil
import torch
from torch.utils import _pytree as pytree

from gearshift.act.verify import error_between
from gearshift.bench.models import SIZES
from gearshift.capture.load import load

CHECK_EVERY = 16
OTHER_SIZES, BUILD, REST = "other sizes", "build", "rest"
WORK = threading.Event()
PR_SET_PDEATHSIG = 1
MODEL_FILE = "model.onnx"
Call = Callable[..., Any]


def main() -> None:
    """A stopped process would outlive a benchmark that was killed: this one goes with it."""
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    answers, sys.stdout = sys.stdout, sys.stderr  # a model or a library may print
    print(json.dumps({"arrived": True}), file=answers, flush=True)
    order = json.loads(sys.stdin.readline() or "null")
    if order is None:
        return
    torch.manual_seed(0)
    model, example = load(order["model"])
    args = tuple(example) if isinstance(example, tuple | list) else (example,)
    sizes = SIZES[order["model"]] if order["sizes"] else None
    if sizes is not None:
        args = sizes[0]()
    start_s = perf_counter()
    with torch.no_grad():
        expected = model(*args)
        call, plan, tell = KINDS[order["kind"]](model, args, order)
        for _ in range(order["warm_up"]):
            call(*args)
        ready = {"ready_s": perf_counter() - start_s, "batch": batch_of(args)}
        print(json.dumps(ready), file=answers, flush=True)
        for line in sys.stdin:
            word = line.strip()
            if word == OTHER_SIZES and sizes is not None:
                args = sizes[1]()
                expected = model(*args)
            elif word == BUILD:
                WORK.set()
            elif word == REST:
                WORK.clear()
            else:
                answer = run(call, plan, args, expected, float(line))
                print(json.dumps({**answer, **tell()}), file=answers, flush=True)


def run(
    call: Call, plan: Callable[[], str], args: Any, expected: Any, seconds: float
) -> dict[str, Any]:
    """Calls one after the other; every so many of them compared with the model's own answer. The
    first one, after a pause, is not counted, for nobody."""
    call(*args)
    call_s: list[float] = []
    at_s: list[float] = []
    plans: list[str] = []
    worst = 0.0
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


Opened = tuple[Call, Callable[[], str], Callable[[], dict[str, Any]]]


def fixed(call: Call) -> Opened:
    """One that never changes, and has nothing to tell."""
    return call, str, dict


def eager(model: Any, args: Any, order: Any) -> Opened:
    if order["threads"]:
        torch.set_num_threads(order["threads"])
    return fixed(model)


def compiled(model: Any, args: Any, order: Any) -> Opened:
    if order["threads"]:
        torch.set_num_threads(order["threads"])
    return fixed(torch.compile(model))


def export(model: Any, args: Any, order: Any) -> Opened:
    """For all who run ONNX."""
    program = torch.onnx.export(model, args, dynamo=True, verbose=False)
    assert program is not None
    program.save(_file(order), external_data=False)
    return fixed(model)


def onnxruntime(model: Any, args: Any, order: Any) -> Opened:
    import onnxruntime as ort

    options = ort.SessionOptions()
    if order["threads"]:
        options.intra_op_num_threads = order["threads"]
    if order["spin"] is not None:
        options.add_session_config_entry("session.intra_op.allow_spinning", str(int(order["spin"])))
    session = ort.InferenceSession(_file(order), options, providers=["CPUExecutionProvider"])
    names = [value.name for value in session.get_inputs()]

    def call(*tensors: Any) -> Any:
        feeds = {n: t.numpy() for n, t in zip(names, tensors, strict=True)}
        return [torch.from_numpy(array) for array in session.run(None, feeds)]

    return fixed(call)


def openvino(model: Any, args: Any, order: Any) -> Opened:
    import openvino as ov

    settings = {"INFERENCE_NUM_THREADS": order["threads"]} if order["threads"] else {}
    core = ov.Core()
    built = core.compile_model(core.read_model(_file(order)), "CPU", settings)

    def call(*tensors: Any) -> Any:
        results = built([t.numpy() for t in tensors])
        return [torch.from_numpy(results[output]) for output in built.outputs]

    return fixed(call)


def gearshift(model: Any, args: Any, order: Any) -> Opened:
    from gearshift.runtime import adapt

    runtime = adapt(model, args)

    def tell() -> dict[str, Any]:
        return {"decisions": [str(decision) for decision in runtime.decisions]}

    return runtime, lambda: runtime.running, tell


def with_one_plan(model: Any, args: Any, policy: str) -> Opened:
    """The runtime on a plan asked for by hand: the loop looks on, if there is one."""
    from gearshift.plan import Rewrite
    from gearshift.plan.plan import whole
    from gearshift.runtime import adapt

    runtime = adapt(model, args, policy=policy)
    rewrite = Rewrite(backend="onnxruntime", threads=runtime.space.max_threads)
    runtime.swap(whole(runtime.program.graph, rewrite=rewrite))
    return fixed(runtime)


def building(model: Any, args: Any, order: Any) -> Opened:
    """The runtime on one thread of one core, where a plan is built over and over in the background
    while that is asked for."""
    from gearshift.plan import Rewrite
    from gearshift.plan.plan import whole
    from gearshift.runtime import adapt

    runtime = adapt(model, args, policy="keep")
    graph = runtime.program.graph
    runtime.swap(whole(graph, rewrite=Rewrite(backend="onnxruntime", threads=1)))
    other = whole(graph, rewrite=Rewrite(backend="openvino", threads=1))

    def build() -> None:
        while WORK.wait():
            runtime._background.submit(lambda: runtime._serving.let_go(runtime.prepare(other)))
            runtime.settle()

    threading.Thread(target=build, daemon=True).start()
    os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})  # this thread alone
    return fixed(runtime)


def watched(model: Any, args: Any, order: Any) -> Opened:
    return with_one_plan(model, args, "bandit")


def unwatched(model: Any, args: Any, order: Any) -> Opened:
    return with_one_plan(model, args, "keep")


def _file(order: Any) -> str:
    return str(Path(order["folder"]) / MODEL_FILE)


KINDS = {
    "eager": eager,
    "torch.compile": compiled,
    "export": export,
    "onnxruntime": onnxruntime,
    "openvino": openvino,
    "gearshift": gearshift,
    "watched": watched,
    "unwatched": unwatched,
    "building": building,
}

if __name__ == "__main__":
    main()
