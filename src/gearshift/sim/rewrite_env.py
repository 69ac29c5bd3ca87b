"""`gearshift/Rewrite-v0`: the rewrite world as a Gymnasium environment.

`import gearshift.sim`, then `gymnasium.make("gearshift/Rewrite-v0")`. Must not know who plays.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np

from gearshift.decide.rewrite.actions import ENTRIES
from gearshift.decide.rewrite.reward import RewriteReward
from gearshift.decide.rewrite.state import FAR, INPUTS, features, mask
from gearshift.decide.rewrite.view import RewriteView
from gearshift.errors import MissingExtraError
from gearshift.sim.rewrite_profiles import SHIPPED, RegionProfile, read_regions
from gearshift.sim.rewrite_world import RewriteWorld, Stepped

try:
    import gymnasium
    from gymnasium import spaces
except ImportError:
    raise MissingExtraError("rl", "gearshift/Rewrite-v0") from None

STEPS = 30
"""Then it ends, whatever was tried that is illegal."""
ILLEGAL = -1.0


class RewriteEnv(gymnasium.Env[np.ndarray, np.int64]):
    """One episode: one region, measured by one entry after the other until one is taken."""

    metadata: dict[str, Any] = {"render_modes": []}

    def __init__(self, profiles: Sequence[RegionProfile] | None = None) -> None:
        """On the regions shipped, if none are given."""
        self._profiles = read_regions(SHIPPED) if profiles is None else profiles
        self.observation_space = spaces.Box(-FAR, FAR, (len(INPUTS),), np.float32)
        self.action_space = spaces.Discrete(len(ENTRIES))

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[np.ndarray, dict[str, Any]]:
        super().reset(seed=seed)
        self._world, self._count = RewriteWorld(self._profiles, self.np_random), 0
        return features(self._world.reset()), self._told()

    def step(self, action: np.int64) -> tuple[np.ndarray, float, bool, bool, dict[str, Any]]:
        entry = ENTRIES[int(action)]
        legal = entry in self._world.view.legal
        stepped = self._world.step(entry) if legal else _unchanged(self._world.view)
        self._count += 1
        reward = stepped.reward.total + (0.0 if legal else ILLEGAL)
        told = self._told() | {"reward_parts": stepped.reward.parts()}
        cut = not stepped.end and self._count >= STEPS
        return features(stepped.view), reward, stepped.end, cut, told

    def action_masks(self) -> np.ndarray:
        """Which entries make sense for this region; of MaskablePPO's liking."""
        return mask(self._world.view)

    def _told(self) -> dict[str, Any]:
        return {
            "action_mask": self.action_masks().astype(np.int8),
            "region": self._world.profile.name,
            "took_s": self._world.took_s,
            "oracle_s": self._world.oracle_s,
        }


def _unchanged(view: RewriteView) -> Stepped:
    """What comes of an illegal choice."""
    nothing = RewriteReward(time=0.0, traffic=0.0, measuring=0.0)
    return Stepped(reward=nothing, view=view, end=False)
