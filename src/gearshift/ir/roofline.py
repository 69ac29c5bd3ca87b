"""What a machine can do at most, as plain data: arithmetic, and bytes from each level of memory.

Must not know how it is measured.
"""

from dataclasses import asdict, dataclass
from typing import Any, Self


@dataclass(frozen=True, slots=True, kw_only=True)
class Caches:
    """L1 (data) and L2 of one core, L3 of all it shares it with; `origin` says who tells."""

    l1_bytes: int
    l2_bytes: int
    l3_bytes: int
    origin: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Roofline:
    """What `num_threads` cores do together. A multiply-add is two operations."""

    num_threads: int
    caches: Caches
    peak_flops_s: float
    l1_bytes_s: float
    l2_bytes_s: float
    l3_bytes_s: float
    dram_bytes_s: float
    took_s: float

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def from_dict(cls, data: dict[str, Any]) -> Self:
        return cls(**{**data, "caches": Caches(**data["caches"])})
