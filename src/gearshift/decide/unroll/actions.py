"""What there is to choose: another setting for one of the layers, or to leave all as they are.

Must not know what any of it takes.
"""

from dataclasses import dataclass

import numpy as np

from gearshift.decide.unroll.view import Settings, UnrollView
from gearshift.plan.unroll import Steps, choices

MAX_LAYERS = 6
"""Those above are left as they are."""
CHOICES = tuple(choices())
CHOICE = {steps: index for index, steps in enumerate(CHOICES)}


@dataclass(frozen=True, slots=True, kw_only=True)
class Action:
    layer: int
    steps: Steps

    def __str__(self) -> str:
        return f"layer {self.layer} {self.steps}"


ACTIONS: tuple[Action | None, ...] = (
    *(Action(layer=layer, steps=steps) for layer in range(MAX_LAYERS) for steps in CHOICES),
    None,
)
"""The last is to stay."""
STAY = len(ACTIONS) - 1
NAMES = tuple("stay" if action is None else str(action) for action in ACTIONS)


def number_of(layer: int, steps: Steps) -> int:
    """Of the action."""
    return layer * len(CHOICES) + CHOICE[steps]


def applied(settings: Settings, action: int) -> Settings:
    chosen = ACTIONS[action]
    if chosen is None:
        return settings
    return (*settings[: chosen.layer], chosen.steps, *settings[chosen.layer + 1 :])


def mask(view: UnrollView) -> np.ndarray:
    """To stay is always legal. Another setting is if the layer is there and kept its own for long
    enough, a switch is left, and the memory limit is kept."""
    legal = np.zeros(len(ACTIONS), bool)
    legal[STAY] = True
    if view.switches_left <= 0:
        return legal
    settings, fits = view.settings, _fits(view)
    for layer, seen in enumerate(view.layers[:MAX_LAYERS]):
        if seen.calls_kept < view.dwell_calls:
            continue
        begin = layer * len(CHOICES)
        legal[begin : begin + len(CHOICES)] = fits[layer]
        in_force = CHOICE.get(settings[layer])
        if in_force is not None:
            legal[begin + in_force] = False
    return legal


def _fits(view: UnrollView) -> list[list[bool]]:
    """For each layer, which choices keep the memory limit."""
    limit = view.memory_limit_bytes
    if limit is None:
        return [[True] * len(CHOICES)] * len(view.layers)
    needs = view.footprint
    each = [needs.chunk_bytes(steps) for steps in CHOICES]
    now = [needs.chunk_bytes(steps) for steps in view.settings]
    if needs.held_bytes(view.settings) > limit:  # it was lowered: whatever needs less helps
        return [[chunk < mine for chunk in each] for mine in now]
    rooms = [needs.room_bytes(limit, now, layer) for layer in range(len(now))]
    return [[chunk <= room for chunk in each] for room in rooms]
