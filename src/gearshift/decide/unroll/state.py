"""All that is seen of a stack of recurrent layers when one of their settings is chosen, as numbers:
first of the whole, then of each layer, nothing but zeros of those that are not there.

Must not know where it comes from: a running model or the simulator. What could not be measured is 0
and so is the number before it, which is 1 otherwise.
"""

from math import log2

import numpy as np

from gearshift.decide.unroll.actions import CHOICES, MAX_LAYERS
from gearshift.decide.unroll.view import INPUT_KINDS, LayerView, UnrollView, plain
from gearshift.ir.measurement import Metric
from gearshift.ir.recurrent import GATES

FAR = 4.0
"""No number is larger."""
USUAL_STEP_S = 2e-5
RESTED = 8
"""Calls with one setting; more are all the same."""
SWITCHES = 16
"""The same of the switches that are left."""
WHOLE = (
    *(f"kind {kind}" for kind in GATES),
    *("layers", "input_size", "hidden_size", "directions", "rows", "steps", "filled_share"),
    *(f"inputs {kind}" for kind in INPUT_KINDS),
    *("engines", "threads", "took known", "took", "call known", "call"),
    *("memory limited", "memory", "switches_left"),
)
LAYER = (
    *("there", "engine", "calls_kept"),
    *(f"in force {steps}" for steps in CHOICES),
    *("step_s known", "step_s", "held_bytes known", "held_bytes"),
    *("busy_share known", "busy_share", "run_delay_share known", "run_delay_share"),
    *("hit_share known", "hit_share"),
)
INPUTS = (*WHOLE, *(f"layer {layer} {name}" for layer in range(MAX_LAYERS) for name in LAYER))
IN_FORCE = {steps: [float(steps == other) for other in CHOICES] for steps in CHOICES}
NONE_OF_THEM = [0.0] * len(CHOICES)


def features(view: UnrollView) -> np.ndarray:
    numbers = _whole(view)
    for layer in view.layers[:MAX_LAYERS]:
        numbers += _layer(layer)
    numbers += [0.0] * (len(INPUTS) - len(numbers))
    return np.array(numbers, np.float32)


def _whole(view: UnrollView) -> list[float]:
    stack = view.stack
    return [
        *(float(stack.kind == kind) for kind in GATES),
        min(FAR, stack.num_layers / MAX_LAYERS),
        log2(max(1, stack.input_size)) / 12,
        log2(max(1, stack.hidden_size)) / 12,
        float(stack.num_directions - 1),
        log2(max(1, view.num_rows)) / 8,
        log2(max(1, view.num_steps)) / 12,
        view.filled_share,
        *(float(view.inputs == kind) for kind in INPUT_KINDS),
        *(float(view.num_engines > 1), float(view.num_threads > 1)),
        *_told(view.took_s, _times(view.took_s, view.reference_s)),
        *_told(view.call_s, _times(view.call_s, USUAL_STEP_S) / 2),
        *_memory(view),
        min(1.0, max(0, view.switches_left) / SWITCHES),
    ]


def _memory(view: UnrollView) -> tuple[float, float]:
    """What is held, as a share of the limit."""
    limit = view.memory_limit_bytes
    if limit is None:
        return 0.0, 0.0
    return 1.0, min(FAR, view.footprint.held_bytes(view.settings) / limit)


def _layer(layer: LayerView) -> list[float]:
    return [
        *(1.0, min(FAR, float(layer.engine)), min(1.0, layer.calls_kept / RESTED)),
        *IN_FORCE.get(plain(layer.steps), NONE_OF_THEM),
        *_told(layer.step_s, _times(layer.step_s, USUAL_STEP_S) / 2),
        *_told(layer.held_bytes, log2(max(1.0, layer.held_bytes.value or 0.0)) / 40),
        *_told(layer.busy_share, layer.busy_share.value),
        *_told(layer.run_delay_share, layer.run_delay_share.value),
        *_told(layer.hit_share, layer.hit_share.value),
    ]


def _told(metric: Metric, number: float | None) -> tuple[float, float]:
    """Whether it is known, and the number that stands for it."""
    if metric.value is None or number is None:
        return 0.0, 0.0
    return 1.0, max(-FAR, min(FAR, number))


def _times(metric: Metric, usual: float) -> float:
    """How many times as much as usual, as a power of two."""
    return log2(max(metric.value or usual, 1e-12) / usual)
