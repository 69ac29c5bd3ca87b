"""What is seen of a region when its rewrite is chosen.

Must not know who chooses, or where the numbers come from.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True, kw_only=True)
class RewriteView:
    kind: str
    """Of the op that most of its arithmetic is in."""
    num_ops: int
    flops: float
    moved_bytes: float
    set_bytes: float
    """The distinct ones among those moved."""
    read_bytes: float
    """From other regions,"""
    made_bytes: float
    """and for them."""
    compute_s: float
    """The least that its arithmetic takes on this machine,"""
    memory_s: float
    """and its bytes."""
    in_force: str
    """The entry of the library it runs by now."""
    legal: frozenset[str]
    """Entries that may be chosen."""
    seconds: Mapping[str, float] = field(default_factory=dict)
    """What it takes by each entry that was measured; the one in force is among them."""

    @property
    def compute_bound(self) -> bool:
        return self.compute_s >= self.memory_s

    @property
    def best(self) -> str:
        """Of those measured."""
        return min(self.seconds, key=lambda name: self.seconds[name], default=self.in_force)
