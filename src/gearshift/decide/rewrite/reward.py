"""What a choice earned, in named parts: less time, fewer bytes moved, minus what measuring costs.

Must not know who learns from it. Bytes are modelled, not measured: no counter tells them for one
region.
"""

from dataclasses import asdict, dataclass
from math import log

from gearshift.decide.rewrite.view import RewriteView
from gearshift.plan.library import BY_NAME, Build
from gearshift.plan.rewrite import EAGER, TILES

EFFORT = {Build.NONE: 0.5, Build.QUICK: 1.0, Build.SLOW: 10.0}
"""What it takes to measure an entry, by how it is built; in quick ones."""
DISCOUNT = 0.98
"""What the next reward counts for: what is measured pays off when the last one is chosen."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RewriteWeights:
    time: float = 1.0
    traffic: float = 0.02
    """Of the bytes moved, as a share of what the region moves op by op."""
    measuring: float = 0.01
    """Of one entry that is quick to build."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RewriteReward:
    time: float
    traffic: float
    measuring: float

    @property
    def total(self) -> float:
        return self.time + self.traffic + self.measuring

    def parts(self) -> dict[str, float]:
        return asdict(self)


def rewrite_reward(
    weights: RewriteWeights, *, view: RewriteView, entry: str, after: RewriteView
) -> RewriteReward:
    """Of measuring an entry; or of running by it from now on, if it was measured before. `after` is
    what is seen then. All that a region earns is the logarithm of how many times as fast it is in
    the end, less the rest."""
    anew = entry not in view.seconds
    before, then = view.best, after.best if anew else entry
    spared = moved_share(view, before) - moved_share(view, then)
    return RewriteReward(
        time=weights.time * log(view.seconds[before] / after.seconds[then]),
        traffic=weights.traffic * spared,
        measuring=-price(weights, entry) if anew else 0.0,
    )


def price(weights: RewriteWeights, entry: str) -> float:
    """Of measuring it."""
    return weights.measuring * EFFORT[BY_NAME[entry].build]


def moved_share(view: RewriteView, name: str) -> float:
    """What it moves by this entry, as a share of what its ops move one by one. Modelled: who joins
    ops, or keeps a few rows in the cache, moves each byte once."""
    entry = BY_NAME.get(name)
    one_by_one = entry is None or (entry.backend == EAGER.backend and entry.option != TILES)
    if one_by_one or view.moved_bytes <= 0:
        return 1.0
    return min(1.0, view.set_bytes / view.moved_bytes)
