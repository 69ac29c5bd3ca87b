"""All that is seen of a region and its two engines when its split is chosen, as numbers.

Must not know where it comes from: a running model or the simulator. What could not be measured is
-1, which nothing that can be measured is.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from math import log, log2

import numpy as np

from gearshift.decide.split.actions import NAMES
from gearshift.ir import kinds

KINDS = (
    *(kinds.CONV, kinds.LINEAR, kinds.MATMUL, kinds.ATTENTION, kinds.ELEMENTWISE),
    *(kinds.POOL, kinds.NORM, kinds.SOFTMAX),
)
"""Anything else is none of these."""
NUM_DIMS = 4
UNKNOWN = -1.0
LEAST = 0.05
"""No engine is taken to be slower."""
ALL_OF_IT = 0.85
"""Who uses so much of a core has it to itself: how many they are does not show."""
FAR = 3.0
"""Estimates that differ by more, as powers of two, are all the same."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineView:
    others_share: float | None = None
    """Of its core."""
    run_delay_share: float | None = None
    dram_share: float | None = None
    """Of the machine's bandwidth."""
    l3_hit_share: float | None = None
    pace: float | None = None
    """Work done in a second in the last calls, as a share of the faster engine's; None unless both
    were at work."""

    @property
    def left(self) -> float:
        """The share of its core that is ours, as far as can be seen: from how long it waited for
        it, else from who else is there."""
        if self.run_delay_share is not None:
            return max(LEAST, 1.0 - self.run_delay_share)
        others = self.others_share or 0.0
        count = 1 if others > ALL_OF_IT else round(others / (1 - others))
        return 1 / (1 + count)


Engines = tuple[EngineView, EngineView]
Speeds = tuple[float, float]
ALIKE: Speeds = (1.0, 1.0)


def speeds(engines: Engines, own: Speeds = ALIKE) -> Speeds:
    """What each can do for us now, as a share of what the faster one could undisturbed. From what
    both did, where that is known: its ratio, raised until one of them is as fast as its core
    allows; else from what is left of each core, if they are as fast as they were by themselves."""
    left = [engine.left for engine in engines]
    known = _paces(engines)
    if known is None:
        return max(LEAST, left[0] * own[0]), max(LEAST, left[1] * own[1])
    scale = min(share / pace for share, pace in zip(left, known, strict=True))
    return max(LEAST, scale * known[0]), max(LEAST, scale * known[1])


def own_speeds(engines: Engines) -> Speeds | None:
    """How fast each would be undisturbed, as a share of the faster one; None unless both were at
    work."""
    known = _paces(engines)
    if known is None:
        return None
    one, other = (pace / engine.left for pace, engine in zip(known, engines, strict=True))
    return one / max(one, other), other / max(one, other)


def _paces(engines: Engines) -> Speeds | None:
    one, other = (engine.pace for engine in engines)
    return None if one is None or other is None else (max(LEAST, one), max(LEAST, other))


ENGINE_INPUTS = ("others_share", "run_delay_share", "dram_share", "l3_hit_share", "pace")


@dataclass(frozen=True, slots=True, kw_only=True)
class SplitView:
    engines: Engines
    speeds: Speeds
    """What each can do for us now, as a share of what the faster one could undisturbed."""
    kind: str
    """Of the op that most of the arithmetic is in,"""
    dims: tuple[int, ...]
    """and the sizes of what that makes."""
    num_rows: int
    flops: float
    moved_bytes: float
    item_bytes: int
    in_force: str
    """The action's name."""
    alone_s: float
    """What one undisturbed engine takes."""
    foreseen_s: Mapping[str, float]
    """By the profiling stage, for each legal action;"""
    estimates_s: Mapping[str, float]
    """the same, corrected by what came of those tried."""
    tried: frozenset[str] = frozenset()
    """Actions whose estimates are so corrected."""


INPUTS = (
    *(f"engine {member} {name}" for member in (0, 1) for name in ENGINE_INPUTS),
    *(f"kind {kind}" for kind in KINDS),
    *(f"dim {number}" for number in range(NUM_DIMS)),
    *("rows", "flops", "moved_bytes", "item_bytes"),
    *(f"in force {name}" for name in NAMES),
    *(f"tried {name}" for name in NAMES),
    *(f"estimate {name}" for name in NAMES),
)


ONE_OF_KINDS = {kind: [float(kind == other) for other in KINDS] for kind in KINDS}
NO_KIND = [0.0] * len(KINDS)
ONE_OF_NAMES = {name: [float(name == other) for other in NAMES] for name in NAMES}
NONE_OF_NAMES = [0.0] * len(NAMES)


def features(view: SplitView) -> np.ndarray:
    engines = [getattr(engine, name) for engine in view.engines for name in ENGINE_INPUTS]
    seen = [UNKNOWN if value is None else value for value in engines]
    dims = [log2(max(1, size)) / 12 for size in (*view.dims, *(1,) * NUM_DIMS)[:NUM_DIMS]]
    sizes = [
        *dims,
        log2(max(1, view.num_rows)) / 8,
        log2(max(1.0, view.flops)) / 40,
        log2(max(1.0, view.moved_bytes)) / 40,
        view.item_bytes / 8,
    ]
    kind = ONE_OF_KINDS.get(view.kind, NO_KIND)
    in_force = ONE_OF_NAMES[view.in_force]
    tried = [float(name in view.tried) for name in NAMES] if view.tried else NONE_OF_NAMES
    least_s = min(view.estimates_s.values())
    estimates = [
        min(FAR, log2(view.estimates_s[name] / least_s)) if name in view.estimates_s else FAR
        for name in NAMES
    ]
    return np.array([*seen, *kind, *sizes, *in_force, *tried, *estimates], np.float32)


def foreseen(states: np.ndarray, time: float = 1.0) -> np.ndarray:
    """What each action is worth by the estimates alone, the last of the inputs; `time` is what time
    counts for."""
    worth: np.ndarray = -time * log(2) * states[:, -len(NAMES) :]
    return worth


def mask(view: SplitView) -> np.ndarray:
    return np.array([name in view.estimates_s for name in NAMES])
