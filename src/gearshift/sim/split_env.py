"""`gearshift/Split-v0`: the split world as a Gymnasium environment.

`import gearshift.sim`, then `gymnasium.make("gearshift/Split-v0")`. Must not know who plays.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np

from gearshift.decide.split.actions import NAMES
from gearshift.decide.split.view import FAR, INPUTS, UNKNOWN, SplitView, features, mask
from gearshift.errors import MissingExtraError
from gearshift.plan.objective import SplitWeights
from gearshift.sim.profiles import SHIPPED, Profile, read_profiles
from gearshift.sim.split_world import SplitWorld

try:
    import gymnasium
    from gymnasium import spaces
except ImportError:
    raise MissingExtraError("rl", "gearshift/Split-v0") from None

STEPS = 60
ILLEGAL = -1.0


class SplitEnv(gymnasium.Env[np.ndarray, np.int64]):
    """One episode: one region on two engines, so many choices while neighbours come and go."""

    metadata: dict[str, Any] = {"render_modes": []}

    def __init__(
        self, profiles: Sequence[Profile] | None = None, weights: SplitWeights | None = None
    ) -> None:
        """On the regions shipped and by the usual weights, if none are given."""
        self._profiles = read_profiles(SHIPPED) if profiles is None else profiles
        self._weights = weights or SplitWeights()
        self.observation_space = spaces.Box(UNKNOWN, FAR, (len(INPUTS),), np.float32)
        self.action_space = spaces.Discrete(len(NAMES))

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[np.ndarray, dict[str, Any]]:
        super().reset(seed=seed)
        self._world = SplitWorld(self._profiles, self.np_random, self._weights)
        self._view, self._count = self._world.reset(), 0
        return features(self._view), self._told(self._view)

    def step(self, action: np.int64) -> tuple[np.ndarray, float, bool, bool, dict[str, Any]]:
        legal = bool(self.action_masks()[action])
        stepped = self._world.step(int(action))
        self._view, self._count = stepped.view, self._count + 1
        reward = stepped.reward.total + (0.0 if legal else ILLEGAL)
        told = self._told(stepped.view) | {
            "took_s": stepped.took_s,
            "oracle_s": stepped.oracle_s,
            "reward_parts": stepped.reward.parts(),
        }
        return features(stepped.view), reward, False, self._count >= STEPS, told

    def action_masks(self) -> np.ndarray:
        """Which splits are legal for this region; of MaskablePPO's liking."""
        return mask(self._view)

    def _told(self, view: SplitView) -> dict[str, Any]:
        return {"action_mask": mask(view).astype(np.int8), "region": self._world.profile.name}
