"""What a call is filed under: its sizes as people write them, and how much work it is.

Must not know how long it took.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from gearshift.capture.calls import evaluate
from gearshift.capture.program import Fragment
from gearshift.ir.work import Work, work_of

Key = tuple[Any, ...]


@dataclass(frozen=True, slots=True)
class Label:
    signature: str
    work: Work | None = None
    """Of one call; None where it cannot be counted."""


UNKNOWN = Label("*")
MAX_LABELS = 256


class Labels:
    """Made once for each key, for all plans of a model."""

    def __init__(self, whole: Fragment | None) -> None:
        self._whole = whole
        self._made: dict[Key | None, Label] = {None: UNKNOWN}

    def of(self, key: Key | None) -> Label:
        try:
            label = self._made.get(key)
        except TypeError:  # a constant that cannot be hashed
            return UNKNOWN
        if label is None:
            if len(self._made) >= MAX_LABELS:
                self._made = {None: UNKNOWN}
            label = self._made[key] = Label(signature_text(key or ()), self._work(key or ()))
        return label

    def _work(self, key: Key) -> Work | None:
        if self._whole is None:
            return None
        graph, shapes = self._whole.graph, key[::2]
        reads = self._whole.sizes.reads
        bound = {symbol: shapes[leaf][dim] for symbol, (leaf, dim) in reads.items()}
        try:
            return work_of(graph, list(graph.position), lambda size: size_number(size, bound))
        except ValueError:
            return None


def size_number(size: int | str, bound: Mapping[str, int]) -> int:
    number = evaluate(str(size), bound)
    if number is None:
        raise ValueError(size)
    return number


def signature_text(key: Sequence[Any]) -> str:
    """Shapes and dtypes; other arguments as they print."""
    return ", ".join(
        f"{str(kind).removeprefix('torch.')}{list(value)}"
        if isinstance(kind, torch.dtype)
        else repr(value)[:40]
        for value, kind in zip(key[::2], key[1::2], strict=True)
    )
