"""Inputs to check a plan with: like the example, but random, every row different.

Must not know plans.
"""

from collections.abc import Iterator, Sequence
from typing import Any

import torch
from torch import Tensor

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
    """The example at another size of every free dimension, or None if none fits."""
    for grow in (lambda size: 2 * size if size > 1 else 3, lambda size: size + 1):
        leaves = [_resized(fragment, index, grow) for index in range(len(fragment.leaves))]
        outside = fragment.sizes.why_outside(fragment.leaves, leaves, lone=False)
        if outside is None and _accepted(fragment, leaves):
            return leaves
    return None


def _resized(fragment: Fragment, index: int, grow: Any) -> Any:
    leaf = fragment.example[index]
    for dim, size in enumerate(fragment.leaves[index].shape):
        if isinstance(size, str):
            picks = torch.arange(grow(leaf.shape[dim])) % leaf.shape[dim]
            leaf = leaf.index_select(dim, picks)
    return leaf
