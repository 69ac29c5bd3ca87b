"""The region as PyTorch itself runs it, op by op; of an .onnx model, unoptimised.

Must not know other backends.
"""

from collections.abc import Sequence

import torch
from torch import Tensor

from gearshift.act.backends.onnxruntime import build_session
from gearshift.act.backends.protocol import Executable, Order
from gearshift.act.openmp import on_threads
from gearshift.capture.program import Fragment
from gearshift.plan.rewrite import Rewrite


class EagerBackend:
    name = "eager"
    settings = frozenset({"threads"})
    any_shape = True
    any_thread = False

    def runnable(self, fragment: Fragment) -> frozenset[str]:
        return frozenset(op.name for op in fragment.graph.ops)

    def rewrites(self, num_cores: int) -> tuple[Rewrite, ...]:
        """On all threads that the caller allows; or on one, which waits for no other that lost its
        core."""
        lean = (Rewrite(backend=self.name, threads=1),) if num_cores > 1 else ()
        return (Rewrite(backend=self.name), *lean)

    def held_bytes(self, order: Order) -> int:
        shared = order.fragment.fx is not None and order.device.type == "cpu"
        return 0 if shared else order.weight_bytes

    def build(self, order: Order) -> Executable:
        if order.fragment.fx is None:
            return build_session(order, self.held_bytes(order), optimise=False)
        cut = order.fragment.fx.cut(order.ops, order.sizes)
        weights = tuple(order.fragment.weights[name].to(order.device) for name in cut.weights)
        forward = cut.body.forward

        def run(*inputs: Tensor) -> Sequence[Tensor]:
            return forward(*inputs, *weights)

        if order.rewrite.threads is not None:
            run = on_threads(order.rewrite.threads, run)
        return Executable(
            run=run if order.device.type == "cpu" else _there_and_back(run, order.device),
            inputs=cut.inputs,
            sizes=cut.sizes,
            outputs=cut.outputs,
            held_bytes=self.held_bytes(order),
        )


def _there_and_back(run, device: torch.device):  # type: ignore[no-untyped-def]
    def moved(*inputs: Tensor | int) -> Sequence[Tensor]:
        there = [i.to(device) if isinstance(i, Tensor) else i for i in inputs]
        return [output.cpu() for output in run(*there)]

    return moved
