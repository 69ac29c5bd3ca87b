"""ONNX Runtime: releases the GIL for the whole run; idle threads must not spin for long.

Must not know how the ONNX came about.
"""

import threading
from collections.abc import Callable, Mapping, Sequence
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor

from gearshift.act.backends.protocol import Executable, Order, thread_counts
from gearshift.act.workers import start_workers
from gearshift.capture.program import Fragment
from gearshift.errors import MissingExtraError
from gearshift.ir.topology import CALLER
from gearshift.plan.rewrite import BUFFERS, PLAIN, TILES, Rewrite

if TYPE_CHECKING:
    from gearshift.capture.onnx_graph import OnnxBody


SPIN_US = 1000
"""After a run of the whole model, so that the next call finds threads awake; by default they would
burn their core for 50 ms."""


class OnnxRuntimeBackend:
    name = "onnxruntime"
    settings = frozenset({"threads", "spin", BUFFERS, PLAIN, TILES})
    any_shape = True
    any_thread = True

    def runnable(self, fragment: Fragment) -> frozenset[str]:
        if fragment.onnx is None or find_spec("onnxruntime") is None:
            return frozenset()
        return fragment.onnx.runnable

    def rewrites(self, num_cores: int) -> tuple[Rewrite, ...]:
        quiet = [Rewrite(backend=self.name, threads=n) for n in thread_counts(num_cores)]
        spinning = (
            [Rewrite(backend=self.name, threads=num_cores, spin=True)] if num_cores > 1 else []
        )
        return (*quiet, *spinning)

    def held_bytes(self, order: Order) -> int:
        return order.weight_bytes  # prepacked for its kernels: a second copy

    def build(self, order: Order) -> Executable:
        return build_session(order, self.held_bytes(order))


def build_session(order: Order, held_bytes: int, *, optimise: bool = True) -> Executable:
    """Without optimisation this is also the plain form of an .onnx model's region."""
    cut = order.onnx()
    session, threads = _opened(order, cut.body, optimise=optimise)
    names = [value.name for value in session.get_inputs()]
    outputs = [value.name for value in session.get_outputs()]
    run_session = session.run

    def run(*inputs: Any) -> Sequence[Tensor]:
        feeds = {name: to_numpy(value) for name, value in zip(names, inputs, strict=True)}
        return [to_torch(array) for array in run_session(outputs, feeds)]

    def into(results: Sequence[Tensor], *inputs: Any) -> None:
        binding = session.io_binding()
        for name, value in zip(names, inputs, strict=True):
            binding.bind_cpu_input(name, to_numpy(value))
        for name, result in zip(outputs, results, strict=True):
            array = result.numpy()
            binding.bind_output(name, "cpu", 0, array.dtype, array.shape, result.data_ptr())
        session.run_with_iobinding(binding)

    return Executable(
        run=run if order.rewrite.option != BUFFERS else _into_the_same(run, into),
        into=into,
        inputs=cut.inputs,
        sizes=cut.sizes,
        outputs=cut.outputs,
        held_bytes=held_bytes,
        threads=threads,
    )


def _into_the_same(
    run: Callable[..., Sequence[Tensor]], into: Callable[..., None]
) -> Callable[..., Sequence[Tensor]]:
    """Results of each thread always go to the same place: nobody beyond the call sees them."""
    kept = threading.local()

    def again(*inputs: Any) -> Sequence[Tensor]:
        results: Sequence[Tensor] | None = getattr(kept, "results", None)
        if results is None:
            results = kept.results = [tensor.clone() for tensor in run(*inputs)]
        else:
            into(results, *inputs)
        return results

    return again


def to_numpy(value: Any) -> np.ndarray:
    if type(value) is int:
        return np.array(value, dtype=np.int64)
    if value.requires_grad:
        value = value.detach()
    array: np.ndarray = value.numpy()
    return array if value.is_contiguous() else np.ascontiguousarray(array)


def to_torch(array: Any) -> Tensor:
    return torch.from_numpy(np.asarray(array))


def weight_arrays(order: Order, body: "OnnxBody") -> dict[str, np.ndarray]:
    """What the model's initializers hold; without a copy if the weight is contiguous."""
    weights = {
        name: order.fragment.weights[weight].contiguous().numpy()
        for name, weight in body.weights.items()
    }
    return {**body.arrays, **weights}


def open_session(order: Order, body: "OnnxBody", *, optimise: bool = True) -> Any:
    return _opened(order, body, optimise=optimise)[0]


def _opened(order: Order, body: "OnnxBody", *, optimise: bool) -> tuple[Any, tuple[int, ...]]:
    """A session, and its threads if they wait beside the calling thread without burning their
    cores."""
    try:
        import onnxruntime
    except ImportError:
        raise MissingExtraError("onnx", "the onnxruntime backend") from None
    model = body.model.SerializeToString()
    arrays = weight_arrays(order, body)  # read where they are while a session is made

    def make(affinities: str = "") -> Any:
        options = _options(onnxruntime, order, arrays, optimise=optimise)
        if affinities:
            options.add_session_config_entry("session.intra_op_thread_affinities", affinities)
        return onnxruntime.InferenceSession(model, options, providers=["CPUExecutionProvider"])

    workers, cores = order.threads - 1, order.engine.cores
    if workers == 0 or order.rewrite.spin or order.engine.name != CALLER:
        return make(), ()
    core = min(cores)
    affinities = ";".join([str(core + 1)] * workers)  # it counts cores from one
    found = start_workers(lambda: make(affinities), count=workers, core=core, cores=cores)
    return found or (make(), ())


def _options(
    onnxruntime: Any, order: Order, arrays: Mapping[str, np.ndarray], *, optimise: bool
) -> Any:
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = order.threads
    options.inter_op_num_threads = 1
    options.log_severity_level = 4
    if not optimise:
        options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    elif order.rewrite.option == PLAIN:  # all but the change of layout
        options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_ENABLE_EXTENDED
    options.add_session_config_entry(
        "session.intra_op.allow_spinning", str(int(order.rewrite.spin))
    )
    if order.is_whole_model:
        options.add_session_config_entry("session.intra_op.spin_duration_us", str(SPIN_US))
    else:  # else its threads would spin on and starve the next region's
        options.add_session_config_entry("session.force_spinning_stop", "1")
    if arrays:
        values = [onnxruntime.OrtValue.ortvalue_from_numpy(a) for a in arrays.values()]
        options.add_external_initializers(list(arrays), values)
    return options
