"""A model that cannot be captured whole: its largest submodules that can, and Python between them.

Must not change the user's model: what replaces a submodule sits in a shallow copy of the shell.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from time import perf_counter
from typing import Any

import torch
from torch import nn

from gearshift.capture.calls import own_copy
from gearshift.capture.export import capture_fragment
from gearshift.capture.program import Fragment
from gearshift.capture.recurrent import RaggedCall, padded, repacked, takes_packed
from gearshift.capture.weights import unharmed
from gearshift.errors import CaptureError

WORTH_SHARE = 0.03
"""Submodules that take less of the time than this stay in Python: an export each would not pay."""
ITSELF = "itself"
"""The name of a fragment that is the whole model, but not as it is called."""


@dataclass(slots=True)
class Visit:
    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    seconds: float = 0.0


def capture_parts(
    model: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> tuple[list[Fragment], list[str]]:
    """The fragments, and why the rest could not be captured."""
    visits = _visit(model, args, kwargs)
    fragments: list[Fragment] = []
    reasons: list[str] = []
    total_s = visits[""].seconds if "" in visits else 0.0

    def descend(path: str, module: nn.Module) -> None:
        for name, child in module.named_children():
            inner = f"{path}.{name}" if path else name
            visit = visits.get(inner)
            if visit is None:
                descend(inner, child)
            elif visit.seconds >= WORTH_SHARE * total_s:
                try:
                    fragments.append(_capture(inner, child, visit.args, visit.kwargs))
                except CaptureError as error:
                    reasons.append(f"module {inner}: {error}")
                    descend(inner, child)

    if takes_packed(model, args, kwargs):
        fragments.append(_capture(ITSELF, model, args, kwargs))
    descend("", model)
    return fragments, reasons


def _capture(
    name: str, module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> Fragment:
    """What is given a packed sequence is captured on the padded batch instead."""
    if isinstance(module, nn.RNNBase) and takes_packed(module, args, kwargs):
        call = RaggedCall(module).eval()
        return capture_fragment(name, call, padded(module, *args, **kwargs), {})
    return capture_fragment(name, module, args, kwargs)


def _visit(model: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> dict[str, Visit]:
    """One run of the example: what each submodule was first called with, and how long it took."""
    visits: dict[str, Visit] = {}
    starts: dict[str, float] = {}
    with torch.no_grad(), unharmed(model):
        model(*args, **kwargs)
        handles = list(_hooks(model, visits, starts))
        try:
            model(*args, **kwargs)
        finally:
            for handle in handles:
                handle.remove()
    return visits


def _hooks(model: nn.Module, visits: dict[str, Visit], starts: dict[str, float]) -> Iterator[Any]:
    for path, module in model.named_modules():

        def before(_: Any, args: Any, kwargs: Any, path: str = path) -> None:
            kept = own_copy((args, kwargs))
            visits.setdefault(path, Visit(*kept))
            starts[path] = perf_counter()

        def after(_: Any, __: Any, ___: Any, path: str = path) -> None:
            visits[path].seconds += perf_counter() - starts[path]

        yield module.register_forward_pre_hook(before, with_kwargs=True)
        yield module.register_forward_hook(after)


class StandIn(nn.Module):
    """In a fragment's place; whatever else the shell asks of it, the original answers."""

    def __init__(self, original: nn.Module, serve: Callable[..., Any]) -> None:
        super().__init__()
        del self.__dict__["training"]  # the original's counts
        self.__dict__["original"] = original
        self.__dict__["serve"] = serve

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        return self.__dict__["serve"](*args, **kwargs)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.__dict__["original"], name)


def skeleton(
    model: nn.Module, fragments: list[Fragment]
) -> Callable[[Callable[[str], Callable[..., Any]]], nn.Module]:
    """Makes shells: the model's modules, sharing all state, with stand-ins for fragments."""
    names = {"" if f.name == ITSELF else f.name: f for f in fragments}

    def shell(serve: Callable[[str], Callable[..., Any]]) -> nn.Module:
        return _shell(model, "", names, serve)

    return shell


def _shell(
    module: nn.Module,
    path: str,
    fragments: Mapping[str, Fragment],
    serve: Callable[[str], Callable[..., Any]],
) -> nn.Module:
    if path in fragments:
        fragment = fragments[path]
        call = serve(fragment.name)
        if isinstance(fragment.eager, RaggedCall):
            call = _packed(fragment.eager.module, call)
        return StandIn(module, call)
    replaced: dict[str, tuple[nn.Module, nn.Module]] = {}
    for name, child in module.named_children():
        instead = _shell(child, f"{path}.{name}" if path else name, fragments, serve)
        if instead is not child:
            replaced[name] = (child, instead)
    return _twin(module, replaced) if replaced else module


def _packed(module: nn.RNNBase, serve: Callable[..., Any]) -> Callable[..., Any]:
    """The module's own call around one that is given a padded batch; what else comes, it answers
    itself."""

    def call(*args: Any, **kwargs: Any) -> Any:
        if not takes_packed(module, args, kwargs):
            return module(*args, **kwargs)
        given = args[0] if args else kwargs["input"]
        inputs = padded(module, *args, **kwargs)
        return repacked(module, given, inputs[1], serve(*inputs))

    return call


def _twin(module: nn.Module, replaced: dict[str, tuple[nn.Module, nn.Module]]) -> nn.Module:
    """The same module - one dictionary, so that state read and written is the original's - that
    sees stand-ins where its submodules are still those captured."""
    kind = type(module)

    def children(self: Any) -> dict[str, Any]:
        live = module.__dict__["_modules"]
        return {name: _stand_in(replaced, name, child) for name, child in live.items()}

    def get(self: Any, name: str) -> Any:
        return _stand_in(replaced, name, kind.__getattr__(module, name))

    names = {"_modules": property(children), "__getattr__": get}
    twin: nn.Module = object.__new__(type(kind.__name__, (kind,), names))
    object.__setattr__(twin, "__dict__", module.__dict__)
    return twin


def _stand_in(replaced: dict[str, tuple[nn.Module, nn.Module]], name: str, live: Any) -> Any:
    original, instead = replaced.get(name, (None, None))
    return instead if original is not None and live is original else live
