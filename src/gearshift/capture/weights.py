"""Notices that weights changed after capture: an optimiser step, load_state_dict, `.to()`.

Runs on every call, so it is a few C-level passes over flat lists and nothing else.
"""

from collections.abc import Iterable, Iterator, Sequence
from itertools import chain
from operator import attrgetter, is_
from typing import Any

from torch import Tensor, nn

_version = attrgetter("_version")
_training = attrgetter("training")


Slot = tuple[dict[str, Any], str]
"""The dictionary and key where a module keeps a weight."""


class WeightWatch:
    """Holds what the weights were: the objects, their versions, their addresses.

    A change through `p.data.copy_()` shows in none of these; only the audit of live calls sees it.
    """

    def __init__(self, slots: Sequence[Slot], modules: Iterable[nn.Module]) -> None:
        self._slots = slots
        self._modules = list(modules)
        self._holders = list({id(holder): holder for holder, _ in slots}.values())
        self._objects = list(_held(self._holders))
        self._tensors: list[Tensor] = [holder[key] for holder, key in slots]
        self._tracked = [t for t in self._tensors if not t.is_inference()]
        self._versions = list(map(_version, self._tracked))
        self._addresses = list(map(Tensor.data_ptr, self._tensors))

    def unchanged(self) -> bool:
        """True if every weight is the object, at the version and address it was, in eval mode."""
        return (
            all(map(is_, _held(self._holders), self._objects))
            and list(map(_version, self._tracked)) == self._versions
            and list(map(Tensor.data_ptr, self._tensors)) == self._addresses
            and not any(map(_training, self._modules))
        )

    def training(self) -> bool:
        return any(map(_training, self._modules))

    def renewed(self) -> "WeightWatch":
        return WeightWatch(self._slots, self._modules)


def _held(holders: Sequence[dict[str, Any]]) -> Iterator[Any]:
    return chain.from_iterable(map(dict.values, holders))


NOTHING_TO_WATCH = WeightWatch((), ())
