"""Notices that weights changed after capture: an optimiser step, load_state_dict, `.to()`.

Runs on every call, so it is a few C-level passes over flat lists and nothing else.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from itertools import chain
from operator import attrgetter, getitem, is_
from typing import Any

import torch
from torch import Tensor, nn

_version = attrgetter("_version")
_training = attrgetter("training")


Slot = tuple[dict[str, Any], str]
"""The dictionary and key where a module keeps a weight."""


class WeightWatch:
    """Holds what the weights were: the objects, their versions, their addresses; and the modules.

    A change through `p.data.copy_()` shows in none of these; only the audit of live calls sees it.
    """

    def __init__(self, slots: Sequence[Slot], modules: Sequence[nn.Module]) -> None:
        self._slots, self._modules = slots, modules
        own = {id(holder) for m in modules for holder in (m._parameters, m._buffers)}
        holders = {id(holder): holder for holder, _ in slots if id(holder) in own}
        children = [m._modules for m in modules]
        self._holders = [*holders.values(), *children]
        self._lengths = list(map(len, self._holders))
        self._objects = list(_held(self._holders))
        loose = [(holder, key) for holder, key in slots if id(holder) not in own]
        self._loose_holders = [holder for holder, _ in loose]
        self._loose_keys = [key for _, key in loose]
        self._loose = list(map(getitem, self._loose_holders, self._loose_keys))
        self._tensors: list[Tensor] = [holder[key] for holder, key in slots]
        self._tracked = [t for t in self._tensors if not t.is_inference()]
        self._versions = list(map(_version, self._tracked))
        self._addresses = list(map(Tensor.data_ptr, self._tensors))
        hooks = [h for m in modules for h in (m._forward_hooks, m._forward_pre_hooks)]
        self._no_hooks = [hook for hook in hooks if not hook]

    def unchanged(self) -> bool:
        """True if every weight is the object, at the version and address it was, every module in
        its place and in eval mode, and no hook has come."""
        return (
            list(map(len, self._holders)) == self._lengths
            and all(map(is_, _held(self._holders), self._objects))
            and list(map(_version, self._tracked)) == self._versions
            and list(map(Tensor.data_ptr, self._tensors)) == self._addresses
            and not any(map(_training, self._modules))
            and not any(self._no_hooks)
            and all(map(is_, map(dict.get, self._loose_holders, self._loose_keys), self._loose))
        )

    def training(self) -> bool:
        return any(map(_training, self._modules))

    def reshaped(self) -> str | None:
        """What changed that new weights cannot mend: hooks, or modules put in others' places."""
        if any(self._no_hooks):
            return "a forward hook was added, which a captured graph would not call"
        now = [child for m in self._modules for child in m._modules.values()]
        was = [o for o in self._objects if isinstance(o, nn.Module)]
        if len(now) != len(was) or not all(map(is_, now, was)):
            return "a module was put in another's place; adapt the model again"
        return None

    def renewed(self) -> "WeightWatch":
        return WeightWatch(self._slots, self._modules)


@contextmanager
def unharmed(module: nn.Module) -> Iterator[None]:
    """Buffers that a run of the model changes or exchanges are put back."""
    held = [(m._buffers, dict(m._buffers)) for m in module.modules() if m._buffers]
    before = [(buffer, buffer._version, buffer.clone()) for buffer in module.buffers()]
    try:
        yield
    finally:
        for holder, contents in held:
            holder.update(contents)
        with torch.no_grad():
            for buffer, version, value in before:
                if buffer._version != version:
                    buffer.copy_(value)


def eval_twin(module: nn.Module, made: dict[int, nn.Module] | None = None) -> nn.Module:
    """The module as it is now, sharing all tensors, but in eval mode whatever happens to it."""
    made = {} if made is None else made
    if id(module) not in made:
        twin: nn.Module = object.__new__(type(module))
        made[id(module)] = twin
        children = {n: c and eval_twin(c, made) for n, c in module._modules.items()}
        object.__setattr__(
            twin, "__dict__", {**module.__dict__, "training": False, "_modules": children}
        )
    return made[id(module)]


def _held(holders: Sequence[dict[str, Any]]) -> Iterator[Any]:
    return chain.from_iterable(map(dict.values, holders))


NOTHING_TO_WATCH = WeightWatch((), ())
