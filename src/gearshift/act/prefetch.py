"""Reads weights ahead of their use, so that they are in the cache when a region begins.

Must not know whose they are. One thread for all; it ends with the last who needs it.
"""

import threading
from collections.abc import Callable, Sequence
from queue import SimpleQueue
from weakref import finalize

import numpy as np
import torch
from torch import Tensor

LINE_BYTES = 64


def reading(weights: Sequence[Tensor]) -> Callable[[], None]:
    """Call it to have them read; it does not wait."""
    lines = [_lines(weight) for weight in weights if weight.nbytes >= LINE_BYTES]
    reader = _Reader.shared()

    def ahead() -> None:
        reader.wanted.put(lines)

    finalize(ahead, reader.let_go)
    return ahead


def _lines(weight: Tensor) -> np.ndarray:
    """A number from each line of the cache."""
    flat: np.ndarray = weight.detach().contiguous().view(-1).view(torch.uint8).numpy()
    return flat[::LINE_BYTES]


class _Reader:
    _lock = threading.RLock()  # letting go may interrupt anything, this included
    _one: "_Reader | None" = None

    def __init__(self) -> None:
        self.wanted: SimpleQueue[list[np.ndarray] | None] = SimpleQueue()
        self.users = 0
        threading.Thread(target=self._serve, name="gearshift prefetch", daemon=True).start()

    @classmethod
    def shared(cls) -> "_Reader":
        with cls._lock:
            if cls._one is None:
                cls._one = cls()
            cls._one.users += 1
            return cls._one

    def let_go(self) -> None:
        with self._lock:
            self.users -= 1
            if self.users == 0:
                self.wanted.put(None)
                _Reader._one = None

    def _serve(self) -> None:
        while (lines := self.wanted.get()) is not None:
            for some in lines:
                some.max()
