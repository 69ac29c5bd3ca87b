"""All that is seen of a region when its rewrite is chosen, as numbers.

Must not know where it comes from: a running model or the simulator.
"""

from math import log, log2

import numpy as np

from gearshift.decide.rewrite.actions import ENTRIES
from gearshift.decide.rewrite.view import RewriteView
from gearshift.ir import kinds

KINDS = (
    *(kinds.LINEAR, kinds.MATMUL, kinds.CONV, kinds.ATTENTION),
    *(kinds.POOL, kinds.NORM, kinds.SOFTMAX, kinds.REDUCE),
    *(kinds.ELEMENTWISE, kinds.RESHAPE, kinds.JOIN, kinds.LOOKUP, kinds.RECURRENT),
)
"""Anything else is none of these."""
FAR = 4.0
"""Times that differ by more, as powers of two, are all the same."""
HARDLY = 1.05
"""What was measured to take more than so many times the best is not chosen."""
USUAL_S = 1e-3

INPUTS = (
    *("ops", "flops", "moved_bytes", "set_bytes", "read_bytes", "made_bytes"),
    *("intensity", "compute_share", "of_roof", "of_bandwidth", "seconds"),
    *(f"kind {kind}" for kind in KINDS),
    *(f"in force {name}" for name in ENTRIES),
    *(f"measured {name}" for name in ENTRIES),
    *(f"time {name}" for name in ENTRIES),
)


def features(view: RewriteView) -> np.ndarray:
    now_s = view.seconds[view.in_force]
    one_hot = [float(view.kind == kind) for kind in KINDS]
    in_force = [float(view.in_force == name) for name in ENTRIES]
    measured = [float(name in view.seconds) for name in ENTRIES]
    times = [_near(log2(view.seconds.get(name, now_s) / now_s)) for name in ENTRIES]
    numbers = [*_sizes(view), *_use(view, now_s), *one_hot, *in_force, *measured, *times]
    return np.array(numbers, np.float32)


def _sizes(view: RewriteView) -> list[float]:
    moved = (view.flops, view.moved_bytes, view.set_bytes, view.read_bytes, view.made_bytes)
    return [log2(max(1, view.num_ops)) / 8, *(log2(max(1.0, count)) / 40 for count in moved)]


def _use(view: RewriteView, now_s: float) -> list[float]:
    """What it does with the machine as it runs now."""
    both_s = view.compute_s + view.memory_s
    return [
        _near(log2(max(1.0, view.flops) / max(1.0, view.moved_bytes)) / 4),
        view.compute_s / both_s if both_s > 0 else 0.5,
        min(FAR, max(view.compute_s, view.memory_s) / now_s),
        min(FAR, view.memory_s / now_s),
        _near(log2(now_s / USUAL_S) / 4),
    ]


def _near(value: float) -> float:
    return max(-FAR, min(FAR, value))


def foreseen(states: np.ndarray) -> np.ndarray:
    """What it is worth to run by each entry that was measured, beside the best of them; of the
    others nothing is foreseen. Both are the last of the inputs."""
    count = len(ENTRIES)
    measured, times = states[:, -2 * count : -count] > 0, states[:, -count:]
    best = np.where(measured, times, FAR).min(1, keepdims=True)
    worth: np.ndarray = np.where(measured, -log(2) * (times - best), 0.0)
    return worth


def mask(view: RewriteView) -> np.ndarray:
    """What may be measured, and what of that measured is not clearly slower than the best."""
    most_s = HARDLY * view.seconds[view.best]
    known = view.seconds.keys() | view.legal
    return np.array([n in known and view.seconds.get(n, 0.0) <= most_s for n in ENTRIES])
