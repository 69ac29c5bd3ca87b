"""The library of rewrites: what may be done to a region, each entry with what it works on.

Must not know how a backend does it, or whether it pays. All of it leaves the outputs what they are.
"""

from dataclasses import dataclass
from enum import StrEnum

from gearshift.plan.legal import Space
from gearshift.plan.rewrite import BUFFERS, CHANNELS_LAST, PLAIN, PREFETCH, TILES, UNROLL, Rewrite


class Tag(StrEnum):
    COMPUTE = "compute"
    """Fewer or better instructions."""
    MEMORY = "memory"
    """Fewer bytes, nearer or in a better order."""
    HYBRID = "hybrid"


class Build(StrEnum):
    NONE = "none"
    QUICK = "quick"
    """Tenths of a second."""
    SLOW = "slow"
    """Seconds to half a minute, in a process of its own."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    name: str
    tag: Tag
    does: str
    backend: str
    option: str = ""
    build: Build = Build.QUICK

    def rewrite(self, threads: int | None) -> Rewrite:
        """PyTorch's own and Inductor's threads are the caller's."""
        own = self.backend in ("eager", "inductor")
        return Rewrite(backend=self.backend, threads=None if own else threads, option=self.option)


LIBRARY = (
    Entry(
        name="eager",
        tag=Tag.COMPUTE,
        does="each op by PyTorch's own kernel, one after the other",
        backend="eager",
        build=Build.NONE,
    ),
    Entry(
        name="onnxruntime",
        tag=Tag.HYBRID,
        does="fuses known patterns, lays images out in blocks of channels, plans its buffers",
        backend="onnxruntime",
    ),
    Entry(
        name="openvino",
        tag=Tag.HYBRID,
        does="fuses what follows a product or convolution into it, chooses layouts of its own",
        backend="openvino",
    ),
    Entry(
        name="fusion",
        tag=Tag.COMPUTE,
        does="one loop nest for several ops, vectorised (Inductor)",
        backend="inductor",
        build=Build.SLOW,
    ),
    Entry(
        name="unrolled",
        tag=Tag.COMPUTE,
        does="as fusion, short reductions unrolled, multiply and add in one instruction",
        backend="inductor",
        option=UNROLL,
        build=Build.SLOW,
    ),
    Entry(
        name="channels last",
        tag=Tag.MEMORY,
        does="images and kernels with the channels of a pixel side by side (PyTorch)",
        backend="eager",
        option=CHANNELS_LAST,
    ),
    Entry(
        name="plain layout",
        tag=Tag.MEMORY,
        does="images as they come, without blocks of channels (ONNX Runtime)",
        backend="onnxruntime",
        option=PLAIN,
    ),
    Entry(
        name="tiles",
        tag=Tag.MEMORY,
        does="so few rows at a time through the whole region that they stay in the cache (PyTorch)",
        backend="eager",
        option=TILES,
    ),
    Entry(
        name="tiles by onnxruntime",
        tag=Tag.MEMORY,
        does="the same by ONNX Runtime",
        backend="onnxruntime",
        option=TILES,
    ),
    Entry(
        name="buffers",
        tag=Tag.MEMORY,
        does="results that no caller sees are written to the same place in every call",
        backend="onnxruntime",
        option=BUFFERS,
    ),
    Entry(
        name="prefetch",
        tag=Tag.MEMORY,
        does="its weights are read into the cache while the region before it runs (PyTorch)",
        backend="eager",
        option=PREFETCH,
    ),
)
BY_NAME = {entry.name: entry for entry in LIBRARY}


def options(space: Space) -> list[Rewrite]:
    """Every entry that is more than a backend, where that can run anything here."""
    threads = space.usable_cores
    return [e.rewrite(threads) for e in LIBRARY if e.option and space.runnable.get(e.backend)]


def entry_of(rewrite: Rewrite) -> Entry | None:
    """None for a backend of the user's own."""
    found = (e for e in LIBRARY if (e.backend, e.option) == (rewrite.backend, rewrite.option))
    return next(found, None)
