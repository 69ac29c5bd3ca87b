"""The entry point of `torch.compile(model, backend="gearshift")`.

A recipe: hands each graph torch captures to a Runtime; all of them share one set of engines.
"""

import logging
from collections.abc import Callable, Sequence
from functools import cache
from typing import Any
from weakref import WeakSet

import torch
from torch import Tensor, nn

from gearshift.act.engines import discover
from gearshift.act.pool import EnginePool
from gearshift.capture.compile_backend import compiled
from gearshift.decide.guard import Limits
from gearshift.decide.keep import Keep
from gearshift.errors import UsageError
from gearshift.plan.plan import whole
from gearshift.plan.text import parse_rewrite
from gearshift.runtime import Runtime, adapt

log = logging.getLogger("gearshift")
MAX_ADAPTING = 4
runtimes: "WeakSet[Runtime]" = WeakSet()
"""Those made for torch.compile that are still in use: to look into, or to swap by hand."""


def gearshift(
    graph: torch.fx.GraphModule,
    example_inputs: Sequence[Any],
    options: dict[str, Any] | None = None,
) -> Callable[..., Any]:
    """`options={"rewrite": "onnxruntime"}` runs on that backend and changes nothing. Without it the
    first graphs adapt, each with a loop and a control process of its own; later ones stay eager.
    Nothing is rehearsed: a call is waiting."""
    unknown = set(options or ()) - {"rewrite"}
    if unknown:
        raise UsageError(f"unknown option {min(unknown)!r}; there is 'rewrite'")
    rewrite = (options or {}).get("rewrite")

    def replace(module: nn.Module, tensors: tuple[Tensor, ...]) -> Callable[..., Any]:
        adapting = sum(runtime.adapts for runtime in runtimes)
        policy = Keep.name if rewrite is not None or adapting >= MAX_ADAPTING else None
        if policy is not None and rewrite is None:
            log.warning("%d graphs adapt already; this one stays eager", MAX_ADAPTING)
        runtime = adapt(
            module, tensors, engines=shared_engines(), policy=policy, limits=Limits(setup_s=0)
        )
        runtimes.add(runtime)
        if rewrite is not None:
            runtime.swap(whole(runtime.program.graph, rewrite=parse_rewrite(rewrite)))
        return runtime

    return compiled(graph, replace)


@cache
def shared_engines() -> EnginePool:
    return EnginePool(discover())
