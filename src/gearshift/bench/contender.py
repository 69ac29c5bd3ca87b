"""One contender in a process of its own: `python -m gearshift.bench.contender`.

Reads what to be from the first line, then a number of seconds a line: runs the model for so long
and answers with what it took. Must not know who else is measured.
"""

import json
import sys
from collections.abc import Callable
from time import perf_counter
from typing import Any

import psutil
import torch

from gearshift.act.verify import error_between
from gearshift.capture.load import load

CHECK_EVERY = 16
Call = Callable[..., Any]


def main() -> None:
    order = json.loads(sys.stdin.readline())
    torch.manual_seed(0)
    model, example = load(order["model"])
    args = example if isinstance(example, tuple) else (example,)
    start_s = perf_counter()
    with torch.no_grad():
        expected = model(*args)
        call, tell = KINDS[order["kind"]](model, args, order)
        for _ in range(order["warm_up"]):
            call(*args)
        print(json.dumps({"ready_s": perf_counter() - start_s}), flush=True)
        for line in sys.stdin:
            answer = run(call, args, expected, float(line))
            print(json.dumps({**answer, **tell()}), flush=True)


def run(call: Call, args: Any, expected: Any, seconds: float) -> dict[str, Any]:
    """Calls one after the other; every so many of them compared with the model's own answer."""
    call_s: list[float] = []
    worst = 0.0
    cpu_s = cpu_seconds()
    end_s = perf_counter() + seconds
    while (start_s := perf_counter()) < end_s:
        result = call(*args)
        call_s.append(perf_counter() - start_s)
        if len(call_s) % CHECK_EVERY == 0:
            worst = max(worst, difference(expected, result))
    return {"call_s": call_s, "cpu_s": cpu_seconds() - cpu_s, "max_error": worst}


def difference(expected: Any, result: Any) -> float:
    wants, haves = (x if isinstance(x, tuple | list) else [x] for x in (expected, result))
    return max(error_between(w, torch.as_tensor(h)) for w, h in zip(wants, haves, strict=True))


def cpu_seconds() -> float:
    """Of this process and its children."""
    me = psutil.Process()
    times = [process.cpu_times() for process in (me, *me.children(recursive=True))]
    return float(sum(t.user + t.system for t in times))


def nothing() -> dict[str, Any]:
    return {}


def eager(model: Any, args: Any, order: Any) -> tuple[Call, Callable[[], dict[str, Any]]]:
    if order["threads"]:
        torch.set_num_threads(order["threads"])
    return model, nothing


def compiled(model: Any, args: Any, order: Any) -> tuple[Call, Callable[[], dict[str, Any]]]:
    return torch.compile(model), nothing


def exported(model: Any, args: Any) -> bytes:
    program = torch.onnx.export(model, args, dynamo=True, verbose=False)
    assert program is not None
    return bytes(program.model_proto.SerializeToString())


def onnxruntime(model: Any, args: Any, order: Any) -> tuple[Call, Callable[[], dict[str, Any]]]:
    import onnxruntime as ort

    options = ort.SessionOptions()
    if order["threads"]:
        options.intra_op_num_threads = order["threads"]
    if order["spin"] is not None:
        options.add_session_config_entry("session.intra_op.allow_spinning", str(int(order["spin"])))
    session = ort.InferenceSession(
        exported(model, args), options, providers=["CPUExecutionProvider"]
    )
    names = [value.name for value in session.get_inputs()]

    def call(*tensors: Any) -> Any:
        feeds = {n: t.numpy() for n, t in zip(names, tensors, strict=True)}
        return [torch.from_numpy(array) for array in session.run(None, feeds)]

    return call, nothing


def openvino(model: Any, args: Any, order: Any) -> tuple[Call, Callable[[], dict[str, Any]]]:
    import openvino as ov

    settings = {"INFERENCE_NUM_THREADS": order["threads"]} if order["threads"] else {}
    core = ov.Core()
    built = core.compile_model(core.read_model(exported(model, args)), "CPU", settings)

    def call(*tensors: Any) -> Any:
        results = built([t.numpy() for t in tensors])
        return [torch.from_numpy(results[output]) for output in built.outputs]

    return call, nothing


def gearshift(model: Any, args: Any, order: Any) -> tuple[Call, Callable[[], dict[str, Any]]]:
    from gearshift.runtime import adapt

    runtime = adapt(model, args)
    told = 0

    def tell() -> dict[str, Any]:
        nonlocal told
        decisions = [str(decision) for decision in runtime.decisions]
        new, told = decisions[told:], len(decisions)
        return {"decisions": new, "plan": str(runtime.plan.regions[0].rewrite)}

    return runtime, tell


KINDS = {
    "eager": eager,
    "torch.compile": compiled,
    "onnxruntime": onnxruntime,
    "openvino": openvino,
    "gearshift": gearshift,
}

if __name__ == "__main__":
    main()
