"""Computes nothing: gives tensors of the right shape. Measures the cost of everything else.

Must never be registered for serving: its answers are wrong.
"""

import torch

from gearshift.act.backends.protocol import Executable, Order
from gearshift.capture.program import Fragment
from gearshift.ir.region import boundary
from gearshift.plan.rewrite import Rewrite


class NullBackend:
    name = "null"
    settings: frozenset[str] = frozenset()
    any_shape = False
    any_thread = False

    def runnable(self, fragment: Fragment) -> frozenset[str]:
        return frozenset(op.name for op in fragment.graph.ops)

    def rewrites(self, num_cores: int) -> tuple[Rewrite, ...]:
        return (Rewrite(backend=self.name),)

    def held_bytes(self, order: Order) -> int:
        return 0

    def build(self, order: Order) -> Executable:
        assert order.shapes is not None
        edge = boundary(order.fragment.graph, order.ops)
        values = [order.fragment.graph.values[name] for name in edge.outputs]
        shapes = [tuple(map(int, order.shapes[value.name])) for value in values]
        outputs = [
            torch.zeros(shape, dtype=getattr(torch, value.dtype))
            for shape, value in zip(shapes, values, strict=True)
        ]
        return Executable(
            run=lambda *inputs: outputs,
            inputs=edge.inputs,
            sizes=(),
            outputs=edge.outputs,
            held_bytes=0,
        )
