"""What a choice earned, in named parts: less time, the memory limit kept, cache hits.

Must not know who learns from it.
"""

from dataclasses import asdict, dataclass
from math import log

DISCOUNT = 0.9
"""What the next reward counts for: several layers may have to change before it pays."""


@dataclass(frozen=True, slots=True, kw_only=True)
class UnrollWeights:
    time: float = 1.0
    memory: float = 1.0
    """Of the bytes beyond the limit, as a share of it."""
    cache: float = 0.02
    """Of what is read: the share that is found in the cache."""


@dataclass(frozen=True, slots=True, kw_only=True)
class UnrollReward:
    time: float
    memory: float
    cache: float

    @property
    def total(self) -> float:
        return self.time + self.memory + self.cache

    def parts(self) -> dict[str, float]:
        return asdict(self)


def unroll_reward(
    weights: UnrollWeights,
    *,
    took_s: float,
    reference_s: float,
    held_bytes: float,
    memory_limit_bytes: int | None,
    hit_share: float | None,
) -> UnrollReward:
    """Of one call; `reference_s` is what it takes all at once, padded, on one undisturbed thread.
    What is not known earns nothing."""
    over = 0.0 if memory_limit_bytes is None else max(0.0, held_bytes / memory_limit_bytes - 1)
    return UnrollReward(
        time=-weights.time * log(took_s / reference_s),
        memory=-weights.memory * over,
        cache=weights.cache * (hit_share or 0.0),
    )
