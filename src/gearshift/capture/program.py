"""The captured model: one fragment if it was captured whole, several with Python between if not.

Must not know where the fragments came from or how they will run.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, Protocol

import torch
from torch import Tensor
from torch.utils import _pytree as pytree

from gearshift.capture.calls import CallForm, Leaf, Sizes, describe, evaluate
from gearshift.capture.weights import Slot, WeightWatch
from gearshift.errors import CaptureError
from gearshift.ir.graph import Graph, join_graphs


@dataclass(frozen=True, slots=True, kw_only=True)
class Cut:
    """A region taken out of its graph in one form: what to feed it, and the thing itself."""

    inputs: tuple[str, ...]
    sizes: tuple[str, ...]
    """Sizes to feed after the inputs; none where the sizes were written into the region."""
    weights: tuple[str, ...]
    outputs: tuple[str, ...]
    body: Any


MAX_INDEX_OPS = 32
Shapes = Mapping[str, tuple[int | str, ...]]
"""A dimension is a number, or the name of one left open."""
SizeValues = Mapping[str, int]


class FxForm(Protocol):
    """Cuts a region as a torch.fx.GraphModule over inputs, sizes and weights."""

    def cut(self, ops: Sequence[str], sizes: SizeValues | None) -> Cut: ...


class OnnxForm(Protocol):
    """Cuts a region as an `OnnxBody`: a ModelProto without weights, and which weights it wants."""

    @property
    def runnable(self) -> frozenset[str]: ...

    @property
    def proofs(self) -> dict[tuple[str, ...], Any]:
        """What others found out about its regions, by their ops."""

    def cut(self, ops: Sequence[str], shapes: Shapes | None, sizes: SizeValues | None) -> Cut: ...


class Reference(Protocol):
    """Leaves and names of values in; those values, computed plainly with these weights, out."""

    def __call__(
        self, leaves: Sequence[Any], names: Sequence[str], weights: Mapping[str, Tensor]
    ) -> dict[str, Tensor]: ...


@dataclass(frozen=True, slots=True)
class Ref:
    """An output that is a value of the graph."""

    name: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Expression:
    """An output that is a size: `x.shape[0]`."""

    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Lookup:
    """`op` reads by the value `index`, each number of which must be at least 0 and below `size`."""

    op: str
    index: str
    size: int | str
    made_by: tuple[str, ...]
    """The ops that compute the index, in order; none if it is an input."""

    def cheap(self, graph: Graph) -> bool:
        """Whether the index can be computed by itself before the call: a few whole numbers; or once
        and for all, since it depends on sizes alone."""
        if self.index not in graph.from_inputs:
            return True
        made = [out for op in self.made_by for out in graph.by_name[op].outputs]
        floats = [value for value in made if "float" in graph.values[value].dtype]
        return len(self.made_by) <= MAX_INDEX_OPS and not floats


@dataclass(frozen=True, kw_only=True)
class Fragment:
    """A part of the model captured whole, with its eager form beside it."""

    name: str
    eager: Callable[..., Any]
    """The user's own module: what every plan is compared with."""
    graph: Graph
    form: CallForm
    leaves: tuple[Leaf, ...]
    sizes: Sizes
    size_values: Mapping[str, str]
    """Sizes that ops read, as expressions over the symbols."""
    inputs: tuple[int, ...]
    """For each input of the graph, the leaf that holds it."""
    outputs: tuple[Any, ...]
    """A `Ref`, an `Expression` or a constant for each leaf of the result."""
    out_spec: pytree.TreeSpec
    slots: Mapping[str, Slot]
    """Where the module keeps each weight, so that it can be looked at again."""
    constants: Mapping[str, Tensor]
    watch: WeightWatch
    example: tuple[Any, ...]
    """The leaves the user gave."""
    reference: Reference
    lookups: tuple[Lookup, ...] = ()
    fx: FxForm | None = None
    onnx: OnnxForm | None = None
    notes: tuple[str, ...] = ()

    @cached_property
    def weights(self) -> Mapping[str, Tensor]:
        """The weights as they are when first asked for; `rebound` looks again."""
        live = {name: holder[key].detach() for name, (holder, key) in self.slots.items()}
        return {**live, **self.constants}

    def rebound(self) -> "Fragment":
        """The same capture on the weights the module has now."""
        reason = self.watch.reshaped()
        if reason is not None:
            raise CaptureError(reason)
        for value in self.graph.weights:
            if value.name in self.slots:
                holder, key = self.slots[value.name]
                tensor = holder.get(key)
                came = "nothing" if tensor is None else describe(tensor.dtype, tensor.shape)
                if came != str(value):
                    raise CaptureError(f"the weight {key} was {value} and is now {came}")
        return replace(self, watch=self.watch.renewed())

    def size_numbers(self, bound: Mapping[str, int]) -> dict[str, int]:
        return {name: size_number(text, bound) for name, text in self.size_values.items()}

    def call_eager(self, leaves: Sequence[Any]) -> Any:
        args, kwargs = pytree.tree_unflatten(list(leaves), self.form.spec)
        with torch.no_grad():
            return self.eager(*args, **kwargs)


def size_number(text: str, bound: Mapping[str, int]) -> int:
    number = evaluate(text, bound)
    if number is None:
        raise CaptureError(f"the size {text} cannot be computed from {dict(bound)}")
    return number


@dataclass(frozen=True, kw_only=True)
class Program:
    fragments: tuple[Fragment, ...]
    eager: Callable[..., Any]
    skeleton: Callable[[Callable[[str], Callable[..., Any]]], Callable[..., Any]] | None = None
    """For a model not captured whole: the model with its fragments replaced by others."""
    uncaptured: tuple[str, ...] = ()
    """What could not be captured: where and why."""
    example: tuple[tuple[Any, ...], dict[str, Any]] = ((), {})
    """The arguments the user gave."""
    reference_name: str = "eager"
    capture_s: float = field(default=0.0, compare=False)

    def frozen(self) -> "Program":
        """The same, and nobody looks whether weights or modules changed."""
        still = tuple(replace(f, watch=f.watch.frozen()) for f in self.fragments)
        return replace(self, fragments=still)

    @cached_property
    def graph(self) -> Graph:
        return join_graphs(tuple(fragment.graph for fragment in self.fragments))

    @cached_property
    def by_name(self) -> dict[str, Fragment]:
        return {fragment.name: fragment for fragment in self.fragments}

    @cached_property
    def weight_bytes(self) -> int:
        """Each storage once, however many weights share it."""
        tensors = [t for fragment in self.fragments for t in fragment.weights.values()]
        return weight_bytes(tensors)


def weight_bytes(tensors: Sequence[Tensor]) -> int:
    storages = {t.untyped_storage().data_ptr(): t.untyped_storage().nbytes() for t in tensors}
    return sum(storages.values())
