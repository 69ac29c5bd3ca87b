"""What an agent lived through, to learn from again: the last so many steps, drawn at random.

Must not know what a state or an action is.
"""

from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True, slots=True, kw_only=True)
class Batch:
    states: np.ndarray
    actions: np.ndarray
    rewards: np.ndarray
    next_states: np.ndarray
    next_masks: np.ndarray
    """Which actions are legal there."""
    ends: np.ndarray
    """1 where nothing came after."""


class Replay:
    def __init__(self, capacity: int, num_inputs: int, num_actions: int) -> None:
        self.capacity, self.count, self._next = capacity, 0, 0
        self._states = np.zeros((capacity, num_inputs), np.float32)
        self._next_states = np.zeros((capacity, num_inputs), np.float32)
        self._next_masks = np.zeros((capacity, num_actions), bool)
        self._actions = np.zeros(capacity, np.int64)
        self._rewards = np.zeros(capacity, np.float32)
        self._ends = np.zeros(capacity, np.float32)

    def add(
        self,
        state: np.ndarray,
        action: int,
        reward: float,
        next_state: np.ndarray,
        next_mask: np.ndarray,
        *,
        end: bool,
    ) -> bool:
        """False, and nothing is kept, if anything of it is no number."""
        numbers = (state, next_state, np.array(reward))
        if not all(bool(np.isfinite(number).all()) for number in numbers):
            return False
        at = self._next
        self._states[at], self._next_states[at] = state, next_state
        self._actions[at], self._rewards[at], self._ends[at] = action, reward, float(end)
        self._next_masks[at] = next_mask
        self._next = (at + 1) % self.capacity
        self.count = min(self.count + 1, self.capacity)
        return True

    def draw(self, size: int, random: np.random.Generator) -> Batch:
        picked = random.integers(self.count, size=size)
        return Batch(
            states=self._states[picked],
            actions=self._actions[picked],
            rewards=self._rewards[picked],
            next_states=self._next_states[picked],
            next_masks=self._next_masks[picked],
            ends=self._ends[picked],
        )
