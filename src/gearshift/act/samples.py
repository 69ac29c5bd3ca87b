"""Inputs to check a plan with: like the example, but random, every row different.

Must not know plans.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from gearshift.capture.calls import evaluate
from gearshift.capture.program import Fragment

NUM_SAMPLES = 3


def samples(fragment: Fragment, leaves: Sequence[Any], seed: int = 0) -> Iterator[list[Any]]:
    """Random leaves of the same signature. If the model refuses them, the leaves themselves."""
    generator = torch.Generator().manual_seed(seed)
    for _ in range(NUM_SAMPLES):
        drawn = [_like(leaf, generator) for leaf in leaves]
        yield drawn if _accepted(fragment, drawn) else list(leaves)


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


def _accepted(fragment: Fragment, leaves: Sequence[Any]) -> bool:
    try:
        fragment.call_eager(leaves)
    except Exception:  # the model's own word on whether these inputs make sense to it
        return False
    return True


def other_sizes(fragment: Fragment) -> list[Any] | None:
    """The example at another size of every dimension that can have one, or None if none can."""
    for change in (
        lambda s: 2 * s if s > 1 else 3,
        lambda s: s + 1,
        lambda s: s - 1,
        lambda s: s // 2,
    ):
        sizes = _changed(fragment, change)
        leaves = [_resized(fragment, index, sizes) for index in range(len(fragment.leaves))]
        outside = fragment.sizes.why_outside(fragment.leaves, leaves, lone=False)
        if sizes and outside is None and _accepted(fragment, leaves):
            return leaves
    return None


def _changed(fragment: Fragment, change: Callable[[int], int]) -> dict[str, int]:
    """New sizes for those symbols whose changed size the capture allows."""
    sizes = {}
    for symbol, size in fragment.sizes.bind(fragment.example).items():
        low, high = fragment.sizes.ranges.get(symbol, (2, 2**63))
        if max(low, 2) <= change(size) <= high:
            sizes[symbol] = change(size)
    return sizes


def _resized(fragment: Fragment, index: int, sizes: Mapping[str, int]) -> Any:
    leaf = fragment.example[index]
    for dim, size in enumerate(fragment.leaves[index].shape):
        wanted = evaluate(size, sizes) if isinstance(size, str) else None
        if wanted is not None:
            leaf = leaf.index_select(dim, torch.arange(wanted) % leaf.shape[dim])
    return leaf
