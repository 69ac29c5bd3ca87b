"""Inputs to check a plan with: like the example, but random, every row different.

Must not know plans.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from gearshift.capture.calls import evaluate
from gearshift.capture.program import Fragment

NUM_SAMPLES = 3
SMALL = 1e-4


def samples(leaves: Sequence[Any], seed: int = 0) -> Iterator[list[Any]]:
    """Random leaves of the same signature."""
    generator = torch.Generator().manual_seed(seed)
    for number in range(NUM_SAMPLES):
        drawn = [_like(leaf, generator) for leaf in leaves]
        if number > 0:
            drawn = [_other_mask(leaf, generator, padding=number > 1) for leaf in drawn]
        yield drawn


def _other_mask(leaf: Any, generator: torch.Generator, *, padding: bool) -> Any:
    """Zeros and ones, be they all alike in the example, may be any zeros and ones tomorrow; or such
    as mark the end of each row, which some modules treat apart."""
    if not isinstance(leaf, Tensor) or leaf.is_floating_point() or leaf.is_complex():
        return leaf
    if leaf.numel() == 0 or not bool(((leaf == 0) | (leaf == 1)).all()):
        return leaf
    if not padding or leaf.dim() == 0:
        return torch.randint(2, leaf.shape, generator=generator).to(leaf.dtype)
    length = leaf.shape[-1]
    lengths = torch.randint(1, length + 1, (*leaf.shape[:-1], 1), generator=generator)
    tail = torch.arange(length) >= lengths
    return tail if leaf.dtype is torch.bool else (~tail).to(leaf.dtype)


def faint(leaves: Sequence[Any]) -> Iterator[list[Any]]:
    """Small numbers: where `log(1 + x)` is not `log1p(x)`."""
    if any(map(_is_float, leaves)):
        yield [leaf * SMALL if _is_float(leaf) else leaf for leaf in leaves]


def _like(leaf: Any, generator: torch.Generator) -> Any:
    """Floats with the example's mean and spread; other values drawn from the example's own, so that
    an index stays an index and a mask stays a mask."""
    if not isinstance(leaf, Tensor) or leaf.numel() == 0:
        return leaf
    if leaf.is_floating_point():
        flat = leaf.double()
        finite = flat[flat.isfinite()]
        mean, spread = (finite.mean(), finite.std(correction=0)) if finite.numel() else (0.0, 1.0)
        noise = torch.randn(leaf.shape, generator=generator, dtype=torch.float64)
        return (noise * (spread if spread > 0 else 1.0) + mean).to(leaf.dtype)
    if leaf.is_complex():
        return leaf * torch.randn(leaf.shape, generator=generator).to(leaf.dtype)
    picks = torch.randint(leaf.numel(), leaf.shape, generator=generator)
    return leaf.reshape(-1)[picks]


@dataclass(frozen=True, slots=True)
class Question:
    leaves: Sequence[Any]
    answer: Any


def ask(fragment: Fragment, leaves: list[Any]) -> Question | None:
    """None if the model refuses these inputs."""
    try:
        return Question(leaves, fragment.call_eager(leaves))
    except Exception:  # the model's own word on whether these inputs make sense to it
        return None


def extremes(leaves: Sequence[Any]) -> Iterator[list[Any]]:
    """Zeros, negatives and large numbers: what makes logarithms, roots and quotients break."""
    if any(map(_is_float, leaves)):
        for change in (torch.zeros_like, lambda t: -t.abs() - 1, lambda t: t * 1e4):
            yield [change(leaf) if _is_float(leaf) else leaf for leaf in leaves]


def with_odd_values(leaves: Sequence[Any]) -> Iterator[list[Any]]:
    """A NaN, an Inf, a -Inf: alone, at the beginning or in the middle of every float tensor."""
    if any(map(_is_float, leaves)):
        for value in (float("nan"), float("inf"), float("-inf")):
            for part in (0, 0.5):
                yield [_odd(leaf, value, part) if _is_float(leaf) else leaf for leaf in leaves]


def _odd(leaf: Tensor, value: float, part: float) -> Tensor:
    flat = leaf.detach().clone().reshape(-1)
    flat[int(part * flat.numel())] = value
    return flat.reshape(leaf.shape)


def _is_float(leaf: Any) -> bool:
    return isinstance(leaf, Tensor) and leaf.is_floating_point() and leaf.numel() > 0


CHANGES: tuple[Callable[[int], int], ...] = (
    lambda size: 2 * size if size > 1 else 3,
    lambda size: size + 1,
    lambda size: size - 1,
    lambda size: size // 2,
)


def other_sizes(fragment: Fragment) -> list[Any] | None:
    """The example at other sizes: of all free dimensions if that fits, else of one. Or None."""
    symbols = list(fragment.sizes.reads)
    for chosen in (symbols, *([symbol] for symbol in symbols)):
        for change in CHANGES:
            sizes = _changed(fragment, chosen, change)
            leaves = [resized(fragment, index, sizes) for index in range(len(fragment.leaves))]
            outside = fragment.sizes.why_outside(fragment.leaves, leaves, lone=False)
            if sizes and outside is None and ask(fragment, leaves) is not None:
                return leaves
    return None


def _changed(
    fragment: Fragment, chosen: Sequence[str], change: Callable[[int], int]
) -> dict[str, int]:
    """New sizes for the chosen symbols where the capture allows them; a 1 never stays one."""
    sizes = {}
    for symbol, size in fragment.sizes.bind(fragment.example).items():
        low, high = fragment.sizes.ranges.get(symbol, (2, 2**63))
        if symbol in chosen and max(low, 2) <= change(size) <= high:
            sizes[symbol] = change(size)
        elif size == 1:
            sizes[symbol] = 2
    return sizes


def resized(fragment: Fragment, index: int, sizes: Mapping[str, int]) -> Any:
    leaf = fragment.example[index]
    for dim, size in enumerate(fragment.leaves[index].shape):
        known = {**fragment.sizes.bind(fragment.example), **sizes}
        wanted = evaluate(size, known) if isinstance(size, str) else None
        if wanted is not None:
            leaf = leaf.index_select(dim, torch.arange(wanted) % leaf.shape[dim])
    return leaf
