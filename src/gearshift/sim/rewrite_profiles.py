"""What regions were measured to take by each entry of the library, each by itself on a quiet
machine.

Must not know who measured.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from gearshift.errors import UsageError
from gearshift.plan.library import BY_NAME
from gearshift.sim.profiles import read_as

SHIPPED = Path(__file__).with_name("rewrite_profiles.json")
"""Recorded by `gearshift train rewrite --record`."""
PLAIN = "eager"
"""The entry that every region can run by."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RegionProfile:
    model: str
    """However many rows it had."""
    name: str
    kind: str
    num_ops: int
    flops: float
    moved_bytes: float
    set_bytes: float
    read_bytes: float
    made_bytes: float
    compute_s: float
    memory_s: float
    seconds: Mapping[str, float]
    """By the entry's name; those that are illegal, or were left out, are missing."""
    build_s: Mapping[str, float]
    """How long it took to build each and to compare it with the model."""


def read_regions(path: Path) -> list[RegionProfile]:
    """Raises UsageError, which names the file, if it holds something else."""
    if path == SHIPPED and not path.exists():
        raise UsageError(
            "no regions are recorded yet: measure some with `gearshift train rewrite --record`, or"
            " give --profiles FILE"
        )
    return read_as(path, _region)


def _region(entry: dict[str, Any]) -> RegionProfile:
    found = RegionProfile(**entry)
    unknown = [name for name in found.seconds if name not in BY_NAME]
    if unknown:
        raise ValueError(f"no entry {unknown[0]!r} in the library")
    if PLAIN not in found.seconds or found.seconds.keys() != found.build_s.keys():
        raise ValueError(f"{found.name} was not measured by {PLAIN}, or not told how it was built")
    if not min(found.seconds.values()) > 0:
        raise ValueError(f"{found.name} takes no time")
    return found
