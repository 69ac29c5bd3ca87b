"""`gearshift/Unroll-v0`: the unroll world as a Gymnasium environment.

`import gearshift.sim`, then `gymnasium.make("gearshift/Unroll-v0")`. Must not know who plays.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np

from gearshift.decide.unroll.actions import ACTIONS, mask
from gearshift.decide.unroll.reward import UnrollWeights
from gearshift.decide.unroll.state import FAR, INPUTS, features
from gearshift.errors import MissingExtraError
from gearshift.plan.unroll import Steps
from gearshift.sim.unroll_cases import ARCHITECTURES, Architecture, draw_episode
from gearshift.sim.unroll_oracle import oracle_s
from gearshift.sim.unroll_profiles import SHIPPED, KernelProfile, Kernels, read_kernels
from gearshift.sim.unroll_world import UnrollWorld

try:
    import gymnasium
    from gymnasium import spaces
except ImportError:
    raise MissingExtraError("rl", "gearshift/Unroll-v0") from None

ILLEGAL = -1.0
MIXED = 0.5
"""How likely layers begin with any setting each."""


class UnrollEnv(gymnasium.Env[np.ndarray, np.int64]):
    """One episode: one stack, so many calls while neighbours come and go."""

    metadata: dict[str, Any] = {"render_modes": []}

    def __init__(
        self,
        profiles: Sequence[KernelProfile] | None = None,
        architectures: Sequence[Architecture] = ARCHITECTURES,
        weights: UnrollWeights | None = None,
        mixed: float = MIXED,
        usual: Steps | None = None,
    ) -> None:
        """On the kernels shipped, if none are given. With a usual setting, that is what layers
        begin with unless they begin with any; and what counts is what is earned beyond it in the
        same call: what neighbours and lengths do to both is no choice's merit."""
        self._kernels = Kernels.of(read_kernels(SHIPPED) if profiles is None else profiles)
        self._architectures, self._mixed, self._usual = architectures, mixed, usual
        self._weights = weights or UnrollWeights()
        self.observation_space = spaces.Box(-FAR, FAR, (len(INPUTS),), np.float32)
        self.action_space = spaces.Discrete(len(ACTIONS))

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[np.ndarray, dict[str, Any]]:
        super().reset(seed=seed)
        episode = draw_episode(
            self._architectures,
            self._kernels,
            self.np_random,
            mixed=self._mixed,
            usual=self._usual,
        )
        self._world = UnrollWorld(self.np_random, self._weights)
        view = self._world.begin(episode)
        self._mask = mask(view)
        return features(view), self._told()

    def step(self, action: np.int64) -> tuple[np.ndarray, float, bool, bool, dict[str, Any]]:
        legal = bool(self._mask[action])
        stepped = self._world.step(int(action))
        self._mask = mask(stepped.view)
        usual = 0.0 if self._usual is None else self._world.would_earn(self._usual)
        reward = stepped.reward.total - usual + (0.0 if legal else ILLEGAL)
        told = self._told() | {"took_s": stepped.took_s, "reward_parts": stepped.reward.parts()}
        return features(stepped.view), reward, False, stepped.end, told

    def action_masks(self) -> np.ndarray:
        """What may be chosen; of MaskablePPO's liking."""
        return self._mask

    def oracle_s(self) -> float:
        """What the best settings would have taken in the last call. Takes long to find out."""
        return oracle_s(self._world.case, self._world.call)

    def _told(self) -> dict[str, Any]:
        stack = self._world.case.stack
        name = f"{stack.kind} {stack.num_layers} x {stack.hidden_size}"
        return {"action_mask": self._mask.astype(np.int8), "stack": name}
