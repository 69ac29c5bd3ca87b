"""What was measured, and how far it may be trusted.

Must not know who measures. A metric that could not be had is None and says `unavailable`.
"""

from dataclasses import dataclass
from enum import StrEnum

MIN_S, MAX_S = 1e-6, 3600.0
"""What a call can take: below, a clock was misread; above, something hung."""


def is_sample(seconds: float) -> bool:
    """Also not NaN."""
    return MIN_S <= seconds <= MAX_S


class Source(StrEnum):
    MEASURED = "measured"
    MODELLED = "modelled"
    UNAVAILABLE = "unavailable"


@dataclass(frozen=True, slots=True, kw_only=True)
class Metric:
    value: float | None
    source: Source

    def __post_init__(self) -> None:
        assert (self.value is None) == (self.source is Source.UNAVAILABLE)


@dataclass(frozen=True, slots=True, kw_only=True)
class Measurement:
    """One region under one setting: how long it took, how much it holds, how far off it was."""

    region: str
    ops: tuple[str, ...]
    engine: str
    rewrite: str
    latency_s: float
    held_bytes: Metric
    max_error: float
    build_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class OpReading:
    """One op in a short run of the plain model."""

    op: str
    seconds: float
    moved_bytes: int
    """All that it reads and writes, weights included; of what it looks up in, what it finds."""
    set_bytes: int
    """The distinct ones among them, its working set: views of the same memory share it."""
    transfer_bytes: int
    """Of those, what comes from other ops or goes to them."""
    contiguous: bool
    """Whether what it reads lies in memory in the order of its elements."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Memory:
    """Bytes held, each counted once; modelled from the weights each build copies."""

    weight_bytes: int
    region_bytes: int

    @property
    def total_bytes(self) -> int:
        return self.weight_bytes + self.region_bytes
