"""What a split earned, in named parts: minus time, plus balance, minus transfer, minus memory.

Must not know who learns from it.
"""

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from math import log

from gearshift.plan.objective import SplitWeights


@dataclass(frozen=True, slots=True, kw_only=True)
class SplitReward:
    time: float
    balance: float
    transfer: float
    memory: float

    @property
    def total(self) -> float:
        return self.time + self.balance + self.transfer + self.memory

    def parts(self) -> dict[str, float]:
        return asdict(self)


def split_reward(
    weights: SplitWeights,
    *,
    took_s: float,
    alone_s: float,
    busy_s: Sequence[float],
    link_share: float,
    held_share: float,
) -> SplitReward:
    """`alone_s` is what one undisturbed engine takes; `busy_s`, how long each was at work, none of
    them if that cannot be told; `link_share` and `held_share`, bytes moved between engines and
    bytes held, as shares of what the region moves and holds anyway."""
    longest_s = max(busy_s, default=0.0)
    balance = min(busy_s) / longest_s if longest_s > 0 else 0.0
    return SplitReward(
        time=-weights.time * log(took_s / alone_s),
        balance=weights.balance * balance,
        transfer=-weights.transfer * link_share,
        memory=-weights.memory * held_share,
    )
