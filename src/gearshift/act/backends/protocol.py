"""What every backend offers: which ops it runs, which settings it has, and to build a region.

Must not know engines' insides or plans.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Protocol

import torch
from torch import Tensor

from gearshift.capture.program import Cut, Fragment, Shapes, SizeValues, weight_bytes
from gearshift.ir.region import boundary
from gearshift.ir.topology import EngineSpec
from gearshift.plan.rewrite import Rewrite


@dataclass(frozen=True, slots=True, kw_only=True)
class Order:
    """One region to be built."""

    fragment: Fragment
    ops: tuple[str, ...]
    rewrite: Rewrite
    engine: EngineSpec
    device: torch.device = field(default_factory=lambda: torch.device("cpu"))
    shapes: Shapes | None = None
    """The shape of every input and output; None if it must run at any."""
    sizes: SizeValues | None = None
    """The sizes its ops read, likewise."""
    part: Cut | None = None
    """Of a divided region, what is to be built in its place."""

    @property
    def threads(self) -> int:
        return self.rewrite.threads or max(1, len(self.engine.cores))

    @property
    def is_whole_model(self) -> bool:
        """Nothing else runs before the next call begins."""
        if self.part is not None:
            return False
        return self.fragment.name == "" and len(self.ops) == len(self.fragment.graph.ops)

    def onnx(self) -> Cut:
        """The region as ONNX."""
        if self.part is not None:
            return self.part
        assert self.fragment.onnx is not None
        return self.fragment.onnx.cut(self.ops, self.shapes, self.sizes)

    @property
    def weight_bytes(self) -> int:
        if self.part is not None:
            own = sum(array.nbytes for array in self.part.body.arrays.values())
            return weight_bytes([self.fragment.weights[n] for n in self.part.weights]) + int(own)
        names = boundary(self.fragment.graph, self.ops).weights
        return weight_bytes([self.fragment.weights[name] for name in names])


@dataclass(frozen=True, slots=True, kw_only=True)
class Executable:
    """A built region: feed it the inputs and sizes in this order, get the outputs in this order."""

    run: Callable[..., Sequence[Tensor]]
    inputs: tuple[str, ...]
    sizes: tuple[str, ...]
    outputs: tuple[str, ...]
    held_bytes: int
    """What it holds beyond the model's own weights."""
    exact_below: int | None = None
    """Whole numbers of at least this size may come out wrong."""
    into: Callable[..., None] | None = None
    """The same, but results are written to the tensors given first: contiguous, of the right shapes
    and types."""
    by_torch: bool = False
    """Whether torch's own threads may be at work in it."""
    threads: tuple[int, ...] = ()
    """The system's numbers of threads of its own that may be held on some of the cores."""
    ahead: Callable[[], None] | None = None
    """To be called when the region before it begins; does not wait for anything."""


def thread_counts(num_cores: int) -> list[int]:
    """Worth trying, the most first: all cores, all but one, half of them, one."""
    return sorted({num_cores, max(1, num_cores - 1), max(1, num_cores // 2), 1}, reverse=True)


class Backend(Protocol):
    name: str
    settings: frozenset[str]
    """Which fields of a Rewrite it heeds, and which options; a plan that sets others is refused."""
    any_shape: bool
    """Whether it can build a region without knowing the shapes."""
    any_thread: bool
    """Whether what it builds with one thread runs on whichever thread calls it, several at once."""

    def runnable(self, fragment: Fragment) -> frozenset[str]:
        """The ops of this fragment it can run; none if its library is not installed."""

    def rewrites(self, num_cores: int) -> tuple[Rewrite, ...]:
        """The settings worth trying on a machine with so many cores."""

    def held_bytes(self, order: Order) -> int:
        """What the built region will hold beyond the model's own weights, told before building."""

    def build(self, order: Order) -> Executable: ...
