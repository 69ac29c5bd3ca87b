"""The region as PyTorch itself runs it, op by op; of an .onnx model, unoptimised.

Must not know other backends.
"""

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from gearshift.act.backends.onnxruntime import build_session
from gearshift.act.backends.protocol import Executable, Order
from gearshift.act.prefetch import reading
from gearshift.capture.program import Fragment
from gearshift.ir.region import boundary
from gearshift.plan.rewrite import CHANNELS_LAST, PREFETCH, TILES, Rewrite

IMAGE_DIMS = 4


class EagerBackend:
    name = "eager"
    settings = frozenset({CHANNELS_LAST, PREFETCH, TILES})
    any_shape = True
    any_thread = False

    def runnable(self, fragment: Fragment) -> frozenset[str]:
        return frozenset(op.name for op in fragment.graph.ops)

    def rewrites(self, num_cores: int) -> tuple[Rewrite, ...]:
        return (Rewrite(backend=self.name),)

    def held_bytes(self, order: Order) -> int:
        shared = order.fragment.fx is not None and order.device.type == "cpu"
        if shared and order.rewrite.option == CHANNELS_LAST:
            names = boundary(order.fragment.graph, order.ops).weights
            weights = [order.fragment.weights[name] for name in names]
            return sum(weight.nbytes for weight in weights if weight.dim() == IMAGE_DIMS)
        return 0 if shared else order.weight_bytes

    def build(self, order: Order) -> Executable:
        if order.fragment.fx is None:
            return build_session(order, self.held_bytes(order), optimise=False)
        cut = order.fragment.fx.cut(order.ops, order.sizes)
        weights = tuple(order.fragment.weights[name].to(order.device) for name in cut.weights)
        forward = cut.body.forward

        def run(*inputs: Tensor) -> Sequence[Tensor]:
            return forward(*inputs, *weights)

        if order.rewrite.option == CHANNELS_LAST:
            run = _channels_last(forward, weights)
        return Executable(
            ahead=reading(weights) if order.rewrite.option == PREFETCH else None,
            run=run if order.device.type == "cpu" else _there_and_back(run, order.device),
            inputs=cut.inputs,
            sizes=cut.sizes,
            outputs=cut.outputs,
            held_bytes=self.held_bytes(order),
            by_torch=True,
        )


def _channels_last(
    forward: Callable[..., Sequence[Tensor]], weights: Sequence[Tensor]
) -> Callable[..., Sequence[Tensor]]:
    """Images and kernels so, which convolutions pass on; what comes out is as it would be."""
    turned = tuple(map(_turned, weights))

    def run(*inputs: Tensor | int) -> Sequence[Tensor]:
        results = forward(*map(_turned, inputs), *turned)
        return [result.contiguous() for result in results]

    return run


def _turned(value: Any) -> Any:
    if isinstance(value, Tensor) and value.dim() == IMAGE_DIMS:
        return value.contiguous(memory_format=torch.channels_last)
    return value


def _there_and_back(run, device: torch.device):  # type: ignore[no-untyped-def]
    def moved(*inputs: Tensor | int) -> Sequence[Tensor]:
        there = [i.to(device) if isinstance(i, Tensor) else i for i in inputs]
        return [output.cpu() for output in run(*there)]

    return moved
