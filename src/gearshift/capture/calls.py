"""How a call's arguments become a flat list of leaves, and whether they fit what was captured.

Must not know what happens with the leaves.
"""

import inspect
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import psutil
import torch
from torch.utils import _pytree as pytree

from gearshift.errors import InputError

MAX_RANK = 64
MEMORY_BYTES = psutil.virtual_memory().total


@dataclass(frozen=True, slots=True, kw_only=True)
class Leaf:
    """What was captured at one place of the arguments: a tensor's form, or a constant."""

    name: str
    dtype: torch.dtype | None = None
    shape: tuple[int | str, ...] = ()
    constant: Any = None

    def __str__(self) -> str:
        if self.dtype is None:
            return f"the constant {self.constant!r}"
        return describe(self.dtype, self.shape)


def describe(dtype: torch.dtype, shape: Sequence[int | str]) -> str:
    return f"{str(dtype).removeprefix('torch.')}[{', '.join(map(str, shape))}]"


@dataclass(frozen=True, slots=True, kw_only=True)
class CallForm:
    """Turns `(args, kwargs)` into leaves, the same leaves however the caller spells the call."""

    signature: inspect.Signature | None
    spec: pytree.TreeSpec
    flat: bool
    """Positional tensors only: the arguments are the leaves."""
    num_leaves: int
    nesting: "Nesting | None" = None
    """Of positional tensors in tuples, which need no general machinery, either."""

    def leaves(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Sequence[Any] | None:
        """None if the arguments are built otherwise than those captured."""
        if self.flat and not kwargs and len(args) == self.num_leaves:
            return args
        if self.nesting is not None and not kwargs:
            found: list[Any] = []
            if _gathered(self.nesting, args, found):
                return found
        leaves, spec = pytree.tree_flatten(canonical(self.signature, args, kwargs))
        return leaves if spec == self.spec else None


Nesting = tuple["Nesting | None", ...]
"""None stands for a tensor."""


def _nesting(args: tuple[Any, ...]) -> Nesting | None:
    """None if there is anything else in it."""
    found: list[Nesting | None] = []
    for value in args:
        inner = _nesting(value) if type(value) is tuple else None
        if inner is None and not isinstance(value, torch.Tensor):
            return None
        found.append(inner)
    return tuple(found)


def _gathered(nesting: Nesting, given: tuple[Any, ...], found: list[Any]) -> bool:
    """False if it is built otherwise."""
    if len(given) != len(nesting):
        return False
    for inner, value in zip(nesting, given, strict=True):
        if inner is None and isinstance(value, torch.Tensor):
            found.append(value)
        elif inner is None or type(value) is not tuple or not _gathered(inner, value, found):
            return False
    return True


def canonical(
    signature: inspect.Signature | None, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """The one spelling of a call: positional where it can be, defaults given by hand left out."""
    if signature is None:
        return args, kwargs
    try:
        bound = signature.bind(*args, **kwargs)
    except TypeError:
        return args, kwargs
    for name in list(bound.arguments):
        if bound.arguments[name] is None and signature.parameters[name].default is None:
            del bound.arguments[name]
    return bound.args, bound.kwargs


def call_form(
    signature: inspect.Signature | None, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> CallForm:
    args, kwargs = canonical(signature, args, kwargs)
    leaves, spec = pytree.tree_flatten((args, kwargs))
    flat = not kwargs and all(isinstance(arg, torch.Tensor) for arg in args)
    return CallForm(
        signature=signature,
        spec=spec,
        flat=flat,
        num_leaves=len(leaves),
        nesting=None if kwargs else _nesting(args),
    )


def leaf_names(
    signature: inspect.Signature | None, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> list[str]:
    """A readable name for each leaf: `input_ids`, `pair[0]`, `batch['x']`."""
    given = list(signature.parameters) if signature is not None else []
    paths, _ = pytree.tree_flatten_with_path(canonical(signature, args, kwargs))
    return [_leaf_name(given, path) for path, _ in paths]


def _leaf_name(parameters: list[str], path: tuple[Any, ...]) -> str:
    group, first, *inner = path
    key = first.idx if group.idx == 0 else first.key
    if group.idx == 0:
        key = parameters[key] if key < len(parameters) else f"argument {key}"
    return str(key) + pytree.keystr(tuple(inner))


def why_unlike(expected: Sequence[Leaf], leaves: Sequence[Any] | None) -> str | None:
    """How the leaves differ from those captured, in rank, dtype or a constant; None if they fit."""
    if leaves is None or len(leaves) != len(expected):
        names = ", ".join(f"{leaf.name}: {leaf}" for leaf in expected)
        return f"the arguments are built otherwise than captured; expected {names}"
    for leaf, value in zip(expected, leaves, strict=True):
        reason = _why_unlike(leaf, value)
        if reason is not None:
            return f"{leaf.name}: got {reason}, expected {leaf}"
    return None


def _why_unlike(leaf: Leaf, value: Any) -> str | None:
    if leaf.dtype is None:
        same = type(value) is type(leaf.constant) and bool(value == leaf.constant)
        return None if same else repr(value)
    if not isinstance(value, torch.Tensor):
        return type(value).__name__
    fits = value.dtype == leaf.dtype and value.dim() == len(leaf.shape)
    fits = fits and all(
        isinstance(want, str) or want == have
        for want, have in zip(leaf.shape, value.shape, strict=True)
    )
    return None if fits else describe(value.dtype, value.shape)


def own_copy(tree: Any) -> Any:
    """Of a call's arguments or results: the caller may change what it holds."""
    return pytree.tree_map(_copy, tree)


def _copy(value: Any) -> Any:
    return value.detach().clone() if isinstance(value, torch.Tensor) else value


def refuse_absurd(leaves: Sequence[Any] | None, names: Sequence[str]) -> None:
    """Before anything is allocated: sizes no machine could hold."""
    for index, value in enumerate(leaves or ()):
        if not isinstance(value, torch.Tensor):
            continue
        name = names[index] if index < len(names) else f"argument {index}"
        if value.dim() > MAX_RANK:
            raise InputError(f"{name}: a tensor of {value.dim()} dimensions; at most {MAX_RANK}")
        if value.numel() * value.element_size() > MEMORY_BYTES:
            came = describe(value.dtype, value.shape)
            raise InputError(f"{name}: {came} is larger than this machine's memory")


@dataclass(frozen=True, slots=True, kw_only=True)
class Sizes:
    """The symbols of a captured graph: where each is read, in which range it holds."""

    reads: Mapping[str, tuple[int, int]]
    """Symbol -> (leaf, dimension)."""
    ranges: Mapping[str, tuple[int, int]]
    guards: tuple[str, ...]

    def bind(self, leaves: Sequence[Any]) -> dict[str, int]:
        return {symbol: leaves[leaf].shape[dim] for symbol, (leaf, dim) in self.reads.items()}

    def why_outside(
        self, expected: Sequence[Leaf], leaves: Sequence[Any], *, lone: bool
    ) -> str | None:
        """Why these sizes are not those the capture holds for. With `lone`, a size of 1 passes:
        the capture took it for 2 or more, so the caller must verify that very size."""
        bound = self.bind(leaves)
        for symbol, size in bound.items():
            low, high = self.ranges.get(symbol, (0, 2**63))
            if not (low <= size <= high or (lone and size == 1)):
                index, dim = self.reads[symbol]
                where = f"{expected[index].name}: dimension {dim} is {size}"
                return f"{where}, captured for {low} to {high if high < 2**62 else 'any'}"
        for leaf, value in zip(expected, leaves, strict=True):
            for want, have in zip(leaf.shape, getattr(value, "shape", ()), strict=False):
                if isinstance(want, str) and evaluate(want, bound) != have:
                    return f"{leaf.name}: got {describe(value.dtype, value.shape)}, expected {leaf}"
        if lone and 1 in bound.values():
            return None
        tensors = [value for value in leaves if isinstance(value, torch.Tensor)]
        broken = [guard for guard in self.guards if not _holds(guard, tensors)]
        return f"the capture holds only where {broken[0]}" if broken else None


def evaluate(expression: str, bound: Mapping[str, int]) -> int | None:
    """An expression over sizes, as printed by torch's symbolic shapes."""
    try:
        return int(eval(expression, {"__builtins__": {}}, {**_FUNCTIONS, **bound}))
    except (NameError, ArithmeticError, TypeError, SyntaxError):
        return None


_FUNCTIONS: dict[str, Any] = {
    "Max": max,
    "Min": min,
    "max": max,
    "min": min,
    "FloorDiv": lambda a, b: a // b,
    "Mod": lambda a, b: a % b,
    "PythonMod": lambda a, b: a % b,
    "CeilToInt": lambda a: -(-a // 1),
}


def _holds(guard: str, tensors: list[torch.Tensor]) -> bool:
    try:
        return bool(eval(guard, {"__builtins__": {}}, {**_FUNCTIONS, "L": {"tensors": tensors}}))
    except (NameError, ArithmeticError, TypeError, SyntaxError):
        return False
