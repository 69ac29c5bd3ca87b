"""The knob `rewrite`: how a region is compiled - its backend and that backend's settings.

Must not know how a backend works; what each can run comes in the Space.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from gearshift.ir import kinds
from gearshift.ir.graph import Graph
from gearshift.ir.region import boundary
from gearshift.ir.topology import CALLER

if TYPE_CHECKING:
    from gearshift.plan.legal import Space
    from gearshift.plan.plan import Plan, Region

CHANNELS_LAST, PLAIN, TILES = "channels-last", "plain-layout", "tiles"
BUFFERS, PREFETCH, UNROLL = "buffers", "prefetch", "unroll"
MAKES_ANEW = (
    *(kinds.LINEAR, kinds.MATMUL, kinds.CONV, kinds.ATTENTION),
    *(kinds.POOL, kinds.NORM, kinds.SOFTMAX),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Rewrite:
    backend: str = "eager"
    """eager, inductor, onnxruntime, openvino, or the name of a backend of the user's own."""
    threads: int | None = None
    """None: as many as the engine has cores; the caller's thread keeps the caller's setting."""
    spin: bool = False
    """Whether idle threads of the backend burn their core waiting for the next op."""
    option: str = ""
    """What else is done to the region, if the backend offers it: `plan/library.py`."""

    def __str__(self) -> str:
        threads = "" if self.threads is None else f" x{self.threads}"
        option = f" {self.option}" if self.option else ""
        return f"{self.backend}{threads}{' spin' if self.spin else ''}{option}"


EAGER = Rewrite()


@dataclass(frozen=True, slots=True, kw_only=True)
class SetRewrite:
    region: str
    rewrite: Rewrite

    def apply(self, plan: "Plan", graph: Graph) -> "Plan":
        old = plan.region(self.region)
        return plan.exchange((old,), (replace(old, rewrite=self.rewrite, unroll=None),), graph)


def moves(plan: "Plan", space: "Space") -> Iterator[SetRewrite]:
    for region in plan.regions:
        for rewrite in space.rewrites:
            if rewrite != region.rewrite:
                yield SetRewrite(region=region.name, rewrite=rewrite)


def why_illegal(plan: "Plan", space: "Space") -> str | None:
    for region in plan.regions:
        rewrite = region.rewrite
        if rewrite.backend not in space.runnable:
            if rewrite.backend in space.settings:
                return f"region {region.name}: {rewrite.backend} can run nothing of this model"
            known = ", ".join(sorted(space.runnable))
            return f"region {region.name}: no backend {rewrite.backend!r} here; there are {known}"
        missing = [op for op in region.ops if op not in space.runnable[rewrite.backend]]
        if missing:
            return f"region {region.name}: {rewrite.backend} cannot run {_few(missing)}"
        of_kernels = {"threads"} if region.unroll is not None else set()
        unheeded = _given(rewrite) - space.settings[rewrite.backend] - of_kernels
        if unheeded:
            return f"region {region.name}: {rewrite.backend} has no setting {min(unheeded)!r}"
        if rewrite.threads is not None and not 1 <= rewrite.threads <= space.max_threads:
            return (
                f"region {region.name}: threads={rewrite.threads},"
                f" expected 1 to {space.max_threads}"
            )
        reason = why_unfit(region, space) if rewrite.option else None
        if reason is not None:
            return f"region {region.name}: {rewrite.option}: {reason}"
    return None


def why_unfit(region: "Region", space: "Space") -> str | None:
    """Why its option is not for this region; None if it is."""
    option, graph = region.rewrite.option, space.graph
    if region.split is not None:
        return "not for a region in parts"
    if option == TILES:
        return space.why_untiled(region)
    edge = boundary(graph, region.ops)
    if option == BUFFERS and any(_may_be_kept(graph, value) for value in edge.outputs):
        return "callers may keep what it returns, or a view of it"
    if option == BUFFERS and region.engine != CALLER:
        return "on another engine a later call could be there before this one has read it"
    if option == PREFETCH and not any(value in graph.producer for value in edge.inputs):
        return "nothing runs before it"
    return None


def _may_be_kept(graph: Graph, value: str) -> bool:
    """Unless all that read it are known to make something new."""
    readers = [graph.by_name[op] for op in graph.readers.get(value, ())]
    return value in graph.outputs or any(op.kind not in MAKES_ANEW for op in readers)


def _given(rewrite: Rewrite) -> set[str]:
    plain = Rewrite(backend=rewrite.backend)
    names = ("threads", "spin")
    given = {name for name in names if getattr(rewrite, name) != getattr(plain, name)}
    return given | {rewrite.option} if rewrite.option else given


def _few(names: list[str]) -> str:
    more = f" and {len(names) - 3} more" if len(names) > 3 else ""
    return ", ".join(names[:3]) + more
