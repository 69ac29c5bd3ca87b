"""Proximal policy optimisation (Schulman et al. 2017) with illegal actions masked (Huang and
Ontañón 2022): learned by sb3-contrib's MaskablePPO, served by a network in numpy.

In the order of an agent's life: it learns in many worlds at a time, decides, remembers what came of
it, and is taught again from that. Whoever only decides needs neither torch nor the extra. Must not
know what an action is.
"""

from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from importlib.util import find_spec
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np

from gearshift.decide.learn.network import Network
from gearshift.errors import MissingExtraError

if TYPE_CHECKING:
    import gymnasium
    from sb3_contrib import MaskablePPO
    from stable_baselines3.common.vec_env import VecEnv
    from torch import nn

FAR = 1e6
"""No input is larger."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PpoSettings:
    hidden: tuple[int, ...] = (128, 128)
    """Sizes of the hidden layers, of the actor and of the critic."""
    discount: float = 0.9
    """What the next reward counts for."""
    trace: float = 0.9
    """How far what came later tells of a choice: 0, one step; 1, to the end."""
    rate: float = 5e-4
    """Of learning."""
    worlds: int = 20
    """Lived in at a time,"""
    rollout: int = 2_000
    """for so many steps in all before it learns from them:"""
    epochs: int = 10
    """so often each,"""
    batch: int = 250
    """so many at a time."""
    clip: float = 0.2
    """How far a lesson may change how likely a choice is."""
    entropy: float = 0.01
    """What it is worth to stay undecided."""


@dataclass(slots=True)
class Actor:
    """What was learned, as it decides: the likeliest action, now and then any other."""

    online: Network
    """States to how likely each action is, as logits."""
    critic: Network | None = None
    """States to what is earned from there on; only needed to learn on."""
    epsilon: float = 0.0
    """How often an action is drawn at random."""
    random: np.random.Generator = field(default_factory=lambda: np.random.default_rng(0))

    def act(self, state: np.ndarray, mask: np.ndarray) -> int:
        if self.epsilon and self.random.random() < self.epsilon:
            return int(self.random.choice(np.flatnonzero(mask)))
        return self.best(state, mask)

    def best(self, state: np.ndarray, mask: np.ndarray) -> int:
        logits = self.online(state[None])[0]
        if not np.isfinite(logits).all():
            raise FloatingPointError("the agent's logits are no numbers")
        return int(np.argmax(np.where(mask, logits, -np.inf)))

    def inclined(self, action: int, by: float) -> "Actor":
        """Another one, which takes this action unless one is likelier by so much, as logits."""
        online = self.online.copy()
        online.biases[-1][action] += by
        return replace(self, online=online)


class Learner:
    """A policy that lives in many worlds at a time, and learns after every rollout."""

    def __init__(
        self,
        make: "Callable[[], gymnasium.Env[np.ndarray, np.int64]]",
        settings: PpoSettings,
        seed: int,
    ) -> None:
        """Raises MissingExtraError."""
        _refuse_without_extra()
        from stable_baselines3.common.vec_env import DummyVecEnv

        worlds: VecEnv = DummyVecEnv([make] * settings.worlds)
        num_steps = max(1, settings.rollout // settings.worlds)
        self._size = num_steps * settings.worlds
        hidden = settings.hidden, settings.hidden
        with one_thread():
            self._model = _model(worlds, settings, seed, num_steps, hidden)

    def lived(self) -> Iterator[float]:
        """What each of its choices earns, rollout after rollout; it learned from a rollout when the
        first of it is told."""
        while True:
            yield from self._rollout()

    def actor(self) -> Actor:
        """As it is now."""
        return _exported(self._model)

    def _rollout(self) -> list[float]:
        earned: list[float] = []

        def noted(now: dict[str, Any], _: dict[str, Any]) -> bool:
            earned.extend(map(float, now["rewards"]))
            return True

        with one_thread():
            self._model.learn(self._size, callback=noted, reset_num_timesteps=False)
        return earned


@dataclass(frozen=True, slots=True, kw_only=True)
class Lived:
    """One choice, and what came of it."""

    state: np.ndarray
    mask: np.ndarray
    action: int
    reward: float
    next_state: np.ndarray


class Rollout:
    """The last so many choices, in the order they were made."""

    def __init__(self, capacity: int) -> None:
        self.steps: deque[Lived] = deque(maxlen=capacity)

    @property
    def full(self) -> bool:
        return len(self.steps) == self.steps.maxlen

    def add(self, lived: Lived) -> bool:
        """False, and nothing is kept, if anything of it is no number or the action was illegal."""
        numbers = (lived.state, lived.next_state, np.array(lived.reward))
        sound = all(bool(np.isfinite(number).all()) for number in numbers)
        if not sound or not lived.mask[lived.action]:
            return False
        self.steps.append(lived)
        return True


def taught(actor: Actor, rollout: Rollout, settings: PpoSettings, seed: int) -> Actor:
    """Another one, which learned from a rollout of live calls; what was explored counts as if the
    policy had drawn it. Takes seconds. Raises MissingExtraError."""
    _refuse_without_extra()
    steps = list(rollout.steps)
    sizes = actor.online.sizes if actor.critic is None else actor.critic.sizes
    hidden = actor.online.sizes[1:-1], sizes[1:-1]
    with one_thread():
        world = _nowhere(len(steps[0].state), len(steps[0].mask))
        model = _model(world, replace(settings, worlds=1), seed, len(steps), hidden)
        _carry(actor, model)
        _fill(model, steps)
        model.train()
        return replace(_exported(model), epsilon=actor.epsilon, random=actor.random)


@contextmanager
def one_thread() -> Iterator[None]:
    """Torch on one thread: small networks gain nothing by more, and sums come out the same."""
    import torch

    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def _refuse_without_extra() -> None:
    if find_spec("sb3_contrib") is None:
        raise MissingExtraError("rl", "learning by PPO")


def _model(
    worlds: "VecEnv",
    settings: PpoSettings,
    seed: int,
    num_steps: int,
    hidden: tuple[tuple[int, ...], tuple[int, ...]],
) -> "MaskablePPO":
    """`hidden` are the sizes of the actor's and of the critic's layers."""
    from sb3_contrib import MaskablePPO
    from stable_baselines3.common.logger import Logger
    from torch import nn

    total = num_steps * settings.worlds
    assert total > 1, "a policy learns from several steps"
    assert total % settings.batch != 1, "one step has no spread to be scaled by"
    model = MaskablePPO(
        "MlpPolicy",
        worlds,
        learning_rate=settings.rate,
        n_steps=num_steps,
        batch_size=settings.batch,
        n_epochs=settings.epochs,
        gamma=settings.discount,
        gae_lambda=settings.trace,
        clip_range=settings.clip,
        ent_coef=settings.entropy,
        policy_kwargs={
            "net_arch": {"pi": list(hidden[0]), "vf": list(hidden[1])},
            "activation_fn": nn.ReLU,
        },
        seed=seed,
        device="cpu",
    )
    model.set_logger(Logger(folder=None, output_formats=[]))
    return model


def _nowhere(num_inputs: int, num_actions: int) -> "VecEnv":
    """A world of the right sizes in which nothing happens: all that is learned from was lived
    through elsewhere."""
    import gymnasium
    from gymnasium import spaces
    from stable_baselines3.common.vec_env import DummyVecEnv

    world: gymnasium.Env[np.ndarray, np.int64] = gymnasium.Env()
    world.observation_space = spaces.Box(-FAR, FAR, (num_inputs,), np.float32)
    world.action_space = spaces.Discrete(num_actions)
    return DummyVecEnv([lambda: world])


def _fill(model: "MaskablePPO", steps: Sequence[Lived]) -> None:
    """The model's own memory of a rollout. Where one step does not follow from the one before,
    what was to come is taken to be what the critic says."""
    import torch

    states = torch.from_numpy(np.stack([step.state for step in steps]))
    after = torch.from_numpy(np.stack([step.next_state for step in steps]))
    masks = torch.from_numpy(np.stack([step.mask for step in steps]))
    actions = torch.tensor([step.action for step in steps])
    with torch.no_grad():
        values, likely, _ = model.policy.evaluate_actions(states, actions, masks)
        later = model.policy.predict_values(after).flatten()
    broken = [not np.array_equal(a.next_state, b.state) for a, b in pairwise(steps)]
    buffer = model.rollout_buffer
    buffer.reset()
    for index, step in enumerate(steps):
        begins = index == 0 or broken[index - 1]
        ends = index < len(broken) and broken[index]
        buffer.add(
            step.state[None],
            np.array([[step.action]]),
            np.array([step.reward + (model.gamma * float(later[index]) if ends else 0.0)]),
            np.array([begins]),
            values[index],
            likely[index : index + 1],
            action_masks=step.mask[None],
        )
    buffer.compute_returns_and_advantage(last_values=later[-1:], dones=np.array([False]))


def _layers(model: "MaskablePPO") -> tuple[list["nn.Linear"], list["nn.Linear"]]:
    """Of the actor, of the critic."""
    from torch import nn

    policy = model.policy
    actor = [*policy.mlp_extractor.policy_net, policy.action_net]
    critic = [*policy.mlp_extractor.value_net, policy.value_net]
    mine, its = ([m for m in some if isinstance(m, nn.Linear)] for some in (actor, critic))
    return mine, its


def _exported(model: "MaskablePPO") -> Actor:
    actor, critic = (
        Network(
            [layer.weight.detach().numpy().T.copy() for layer in layers],
            [layer.bias.detach().numpy().copy() for layer in layers],
        )
        for layers in _layers(model)
    )
    return Actor(actor, critic)


def _carry(actor: Actor, model: "MaskablePPO") -> None:
    """Into the model; its own first guess stays where there is no critic."""
    import torch

    for network, layers in zip((actor.online, actor.critic), _layers(model), strict=True):
        if network is None:
            continue
        with torch.no_grad():
            for layer, weight, bias in zip(layers, network.weights, network.biases, strict=True):
                layer.weight.copy_(torch.from_numpy(weight.T))
                layer.bias.copy_(torch.from_numpy(bias))
