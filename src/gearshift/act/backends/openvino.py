"""OpenVINO: releases the GIL for the whole run; a request serves one call at a time.

Must not know how the ONNX came about.
"""

from collections.abc import Callable, Mapping, Sequence
from functools import cache
from importlib.util import find_spec
from threading import Lock
from typing import TYPE_CHECKING, Any

import numpy as np
from torch import Tensor

from gearshift.act.backends.onnxruntime import to_numpy, to_torch, weight_arrays
from gearshift.act.backends.protocol import Executable, Order, thread_counts
from gearshift.capture.program import Fragment
from gearshift.errors import MissingExtraError
from gearshift.ir.graph import Op, Value
from gearshift.plan.rewrite import Rewrite

if TYPE_CHECKING:
    from gearshift.capture.onnx_graph import OnnxBody

EXACT_BELOW = 1 << 20
"""It computes whole numbers as 32-bit floats here and there: sums of a few still fit."""
# OpenVINO's reader takes this location for an address in this process.
IN_MEMORY = "*/_ORT_MEM_ADDR_/*"
_FIRST = Lock()


class OpenVinoBackend:
    name = "openvino"
    settings = frozenset({"threads"})
    any_shape = True
    any_thread = False

    def runnable(self, fragment: Fragment) -> frozenset[str]:
        if fragment.onnx is None or find_spec("openvino") is None:
            return frozenset()
        values = fragment.graph.values
        free = fragment.graph.from_inputs
        return frozenset(
            op.name
            for op in fragment.graph.ops
            if op.name in fragment.onnx.runnable
            # it computes in float32, whatever it is given
            and not any(values[v].dtype == "float64" for v in (*op.operands, *op.outputs))
            and not (free.intersection(op.operands) and _grows(op, values))
        )

    def rewrites(self, num_cores: int) -> tuple[Rewrite, ...]:
        return tuple(Rewrite(backend=self.name, threads=n) for n in thread_counts(num_cores))

    def held_bytes(self, order: Order) -> int:
        return order.weight_bytes  # reordered for its kernels: a second copy

    def build(self, order: Order) -> Executable:
        cut = order.onnx()
        arrays = weight_arrays(order, cut.body)
        compiled = compile_model(order, cut.body, arrays)
        idle = [compiled.create_infer_request()]

        def infer(inputs: Sequence[Any], take: Callable[[list[Any]], Any], weights: Any) -> Any:
            """Holds on to the weights: the compiled model may read them where they are."""
            try:
                request = idle.pop()
            except IndexError:
                request = compiled.create_infer_request()
            given = {index: to_numpy(value) for index, value in enumerate(inputs)}
            request.infer(given, share_inputs=True, share_outputs=True)
            taken = take([tensor.data for tensor in request.output_tensors])
            idle.append(request)
            return taken

        def run(*inputs: Any) -> Sequence[Tensor]:
            results: Sequence[Tensor] = infer(inputs, copies, arrays)
            return results

        def into(results: Sequence[Tensor], *inputs: Any) -> None:
            def copy(made: list[Any]) -> None:
                for result, array in zip(results, made, strict=True):
                    np.copyto(result.numpy(), array)

            infer(inputs, copy, arrays)

        return Executable(
            run=run,
            into=into,
            inputs=cut.inputs,
            sizes=cut.sizes,
            outputs=cut.outputs,
            held_bytes=self.held_bytes(order),
            exact_below=EXACT_BELOW,
        )


def copies(made: Sequence[np.ndarray]) -> list[Tensor]:
    return [to_torch(array.copy()) for array in made]


GROWING = frozenset({"sum", "prod", "cumsum", "cumprod", "mul", "pow", "mm", "bmm", "matmul"})


def _grows(op: Op, values: Mapping[str, Value]) -> bool:
    """Whole numbers that may outgrow what it computes with, or come from what is no number."""
    if values[op.outputs[0]].dtype not in ("int64", "int32"):
        return False
    base = op.form.split(".")[1] if op.form.startswith("aten.") else ""
    from_float = any("float" in values[v].dtype for v in op.operands)
    return base in GROWING or (from_float and base == "_to_copy")


@cache
def _core() -> Any:
    try:
        import openvino
    except ImportError:
        raise MissingExtraError("openvino", "the openvino backend") from None
    with _FIRST:
        # The first use makes a table and lets go of the GIL in between: two engines that came
        # first at the same time would wait for each other for ever.
        openvino.Type.f32.to_dtype()
        return openvino.Core()


def compile_model(order: Order, body: "OnnxBody", arrays: dict[str, np.ndarray]) -> Any:
    model = body.model
    for tensor in model.graph.initializer:
        if tensor.name in arrays:
            address = arrays[tensor.name].__array_interface__["data"][0]
            facts = {"location": IN_MEMORY, "offset": str(address)}
            for entry in tensor.external_data:
                entry.value = facts.get(entry.key, entry.value)
    settings = {
        "INFERENCE_NUM_THREADS": order.threads,
        "NUM_STREAMS": 1,
        # Its first thread would stay on the first core, and wait there for a neighbour's turns.
        "ENABLE_CPU_PINNING": False,
        "INFERENCE_PRECISION_HINT": "f32",
    }
    return _core().compile_model(_core().read_model(model.SerializeToString()), "CPU", settings)
