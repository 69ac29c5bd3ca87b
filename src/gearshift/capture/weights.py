"""Notices that weights changed after capture: an optimiser step, load_state_dict, `.to()`.

Runs on every call, so it is a few C-level passes over flat lists and nothing else.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from itertools import repeat
from operator import attrgetter, contains, getitem, is_
from time import monotonic
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.modules.module import _global_forward_hooks, _global_forward_pre_hooks
from torch.utils.hooks import RemovableHandle

_version = attrgetter("_version")
_training = attrgetter("training")
IN_PLACE_S = 1.0
GLOBAL_HOOKS = (_global_forward_hooks, _global_forward_pre_hooks)


Slot = tuple[dict[str, Any], str]
"""The dictionary and key where a module keeps a weight."""


class WeightWatch:
    """Holds what the weights were: the objects, their versions, their addresses; and the modules.

    A change through `p.data.copy_()` shows in none of these; only the audit of live calls sees it.
    Batch norm's running values change unseen, too, but with them a counter that the graph does not
    even read: so all weights are watched.
    """

    def __init__(self, slots: Sequence[Slot], modules: Sequence[nn.Module]) -> None:
        self._slots, self._modules = slots, modules
        own = {id(holder): holder for m in modules for holder in (m._parameters, m._buffers)}
        holders = {id(holder): holder for holder, _ in slots if id(holder) in own}
        dicts = [*holders.values(), *(m._modules for m in modules)]
        self._filled = [held for held in dicts if held]
        self._were = [dict(held) for held in self._filled]
        hooks = [h for m in modules for h in (m._forward_hooks, m._forward_pre_hooks)]
        self._no_hooks = [h for h in (*hooks, *GLOBAL_HOOKS) if not h]
        self._empty = [held for held in dicts if not held]
        self._handles = self._latest = -1
        self._latest_s = 0.0
        self._tensors: list[Tensor] = [holder[key] for holder, key in slots]
        # Of the others, two that differ cannot be taken for equal.
        loose = [s for s in slots if id(s[0]) not in own or s[0][s[1]].numel() <= 1]
        self._loose_holders = [holder for holder, _ in loose]
        self._loose_keys = [key for _, key in loose]
        self._loose = list(map(getitem, self._loose_holders, self._loose_keys))
        self._tracked = [t for t in self._tensors if not t.is_inference()]
        self._versions = list(map(_version, self._tracked))
        self._addresses = list(map(Tensor.data_ptr, self._tensors))
        self._plain = [m.__dict__ for m in modules if "forward" not in m.__dict__]
        self._flags = [m.__dict__ for m in modules if "training" in m.__dict__]
        self._flagged_otherwise = [m for m in modules if "training" not in m.__dict__]

    def unchanged(self) -> bool:
        """True if every weight is the object, at the version and address it was, every module in
        its place and in eval mode, and no hook or other forward has come."""
        try:
            same = self._filled == self._were
        except Exception:  # another tensor in a weight's place, which does not compare
            return False
        return (
            same
            and (RemovableHandle.next_id == self._handles or self._unhooked())
            and not any(self._empty)
            and all(map(is_, map(dict.get, self._loose_holders, self._loose_keys), self._loose))
            and list(map(_version, self._tracked)) == self._versions
            and list(map(Tensor.data_ptr, self._tensors)) == self._addresses
            and not self.training()
            and not any(map(contains, self._plain, repeat("forward")))
        )

    def _unhooked(self) -> bool:
        """Hooks are numbered: as long as none was made anywhere, none of these modules has one. A
        number is given before the hook is in its place, so it must have been the last for a
        while."""
        number, now_s = RemovableHandle.next_id, monotonic()
        if any(self._no_hooks):
            return False
        if number != self._latest:
            self._latest, self._latest_s = number, now_s
        elif now_s - self._latest_s > IN_PLACE_S:
            self._handles = number
        return True

    def training(self) -> bool:
        return any(map(getitem, self._flags, repeat("training"))) or any(
            map(_training, self._flagged_otherwise)
        )

    def reshaped(self) -> str | None:
        """What changed that new weights cannot mend: hooks, forwards, modules in others' places."""
        if any(self._no_hooks):
            return "a forward hook was added, which a captured graph would not call"
        if any(map(contains, self._plain, repeat("forward"))):
            return "a module was given another forward; adapt the model again"
        was = {id(held): were for held, were in zip(self._filled, self._were, strict=True)}
        for module in self._modules:
            before = was.get(id(module._modules), {})
            if before.keys() != module._modules.keys() or not all(
                map(is_, before.values(), map(module._modules.get, before))
            ):
                return "a module was put in another's place; adapt the model again"
        return None

    def renewed(self) -> "WeightWatch":
        return type(self)(self._slots, self._modules)

    def frozen(self) -> "WeightWatch":
        return FrozenWatch(self._slots, self._modules)


class FrozenWatch(WeightWatch):
    """Of a model whose owner promised that nothing will change: calls do not look."""

    def unchanged(self) -> bool:
        return True


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
        held = module._modules.items()
        children = {n: None if c is None else eval_twin(c, made) for n, c in held}
        object.__setattr__(
            twin, "__dict__", {**module.__dict__, "training": False, "_modules": children}
        )
    return made[id(module)]


NOTHING_TO_WATCH = WeightWatch((), ())
