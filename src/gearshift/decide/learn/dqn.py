"""Deep Q-learning (Mnih et al. 2015), with the double target of van Hasselt et al. 2016.

In the order of the paper: act epsilon-greedily, remember, draw a batch, aim at the target network,
descend. Illegal actions are masked when acting and in the target. What is foreseen of each action's
worth may be given: the network then learns how far off that is.
"""

from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np

from gearshift.decide.learn.network import Network
from gearshift.decide.learn.replay import Batch, Replay


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    hidden: tuple[int, ...] = (64, 64)
    """Sizes of the hidden layers."""
    discount: float = 0.1
    """What the next reward counts for: a split that pays off does so at once."""
    rate: float = 3e-4
    """Of learning."""
    batch: int = 64
    """Steps learned from at a time."""
    capacity: int = 50_000
    """Steps remembered."""
    target_share: float = 0.01
    """How far the target network follows with each step."""
    epsilon: float = 1.0
    """How often an action is drawn at random at first,"""
    epsilon_least: float = 0.02
    """at last,"""
    epsilon_steps: int = 10_000
    """and after how many steps that is."""
    warm_up: int = 500
    """Steps before the first lesson."""
    most: float | None = None
    """How far at most what it learned is from what was foreseen; None: as far as it comes."""


Prior = Callable[[np.ndarray], np.ndarray]
FAINT = 0.1


def nothing(states: np.ndarray) -> np.ndarray:
    """Foreseen of no action."""
    return np.zeros((len(states), 1), np.float32)


@dataclass(slots=True)
class Dqn:
    online: Network
    settings: Settings = field(default_factory=Settings)
    random: np.random.Generator = field(default_factory=lambda: np.random.default_rng(0))
    prior: Prior = nothing
    """For each state, what is foreseen of every action's worth."""
    steps: int = 0
    target: Network = field(init=False)
    replay: Replay = field(init=False)

    def __post_init__(self) -> None:
        self.target = self.online.copy()
        num_inputs, *_, num_actions = self.online.sizes
        self.replay = Replay(self.settings.capacity, num_inputs, num_actions)

    @classmethod
    def fresh(
        cls,
        num_inputs: int,
        num_actions: int,
        seed: int,
        settings: Settings | None = None,
        prior: Prior = nothing,
    ) -> "Dqn":
        """At first it thinks little beyond what is foreseen."""
        settings = settings or Settings()
        random = np.random.default_rng(seed)
        network = Network.drawn((num_inputs, *settings.hidden, num_actions), random)
        network.weights[-1] *= FAINT
        return cls(network, settings, random, prior)

    @property
    def epsilon(self) -> float:
        done = min(1.0, self.steps / self.settings.epsilon_steps)
        return self.settings.epsilon + done * (self.settings.epsilon_least - self.settings.epsilon)

    def values(self, state: np.ndarray, mask: np.ndarray) -> np.ndarray:
        """What each action is thought to be worth; minus infinity if it is illegal."""
        return np.where(mask, self._worth(self.online, state[None])[0], -np.inf)

    def _worth(self, network: Network, states: np.ndarray) -> np.ndarray:
        worth: np.ndarray = self._bounded(network(states)) + self.prior(states)
        return worth

    def _bounded(self, learned: np.ndarray) -> np.ndarray:
        most = self.settings.most
        return learned if most is None else most * np.tanh(learned / most)

    def _steepness(self, bounded: np.ndarray) -> np.ndarray | float:
        """How much what is bounded moves with what it was."""
        most = self.settings.most
        return 1.0 if most is None else 1 - (bounded / most) ** 2

    def best(self, state: np.ndarray, mask: np.ndarray) -> int:
        return int(np.argmax(self.values(state, mask)))

    def act(self, state: np.ndarray, mask: np.ndarray) -> int:
        drawn = self.drawn(mask)
        return self.best(state, mask) if drawn is None else drawn

    def drawn(self, mask: np.ndarray) -> int | None:
        """At random, now and then."""
        if self.random.random() < self.epsilon:
            return int(self.random.choice(np.flatnonzero(mask)))
        return None

    def live(
        self,
        state: np.ndarray,
        action: int,
        reward: float,
        next_state: np.ndarray,
        next_mask: np.ndarray,
        *,
        end: bool = False,
    ) -> None:
        """Remembers a step, and learns from some of those remembered."""
        if not self.replay.add(state, action, reward, next_state, next_mask, end=end):
            return
        self.steps += 1
        if self.replay.count >= min(self.settings.warm_up, self.settings.capacity):
            self.learn(self.replay.draw(self.settings.batch, self.random))

    def learn(self, batch: Batch) -> None:
        rows = np.arange(len(batch.actions))
        ahead = np.where(batch.next_masks, self._worth(self.online, batch.next_states), -np.inf)
        stuck = ~batch.next_masks.any(1)
        choices = np.where(stuck, 0, ahead.argmax(1))
        worth = self._worth(self.target, batch.next_states)[rows, choices]
        later = np.where((batch.ends > 0) | stuck, 0.0, worth)
        aims = batch.rewards + self.settings.discount * later
        learned = self._bounded(self.online(batch.states))
        errors = (learned + self.prior(batch.states))[rows, batch.actions] - aims
        steepness = self._steepness(learned[rows, batch.actions])
        slopes = np.zeros((len(rows), self.online.sizes[-1]), np.float32)
        slopes[rows, batch.actions] = np.clip(errors, -1, 1) / len(rows) * steepness
        self.online.descend(batch.states, slopes, self.settings.rate)
        self.target.follow(self.online, self.settings.target_share)
