"""A small network of rectified layers in numpy: values for a batch of states, and one step down the
gradient.

Must not know what the values mean.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import pairwise

import numpy as np

BETA_1, BETA_2, TINY = 0.9, 0.999, 1e-8
MAX_GRADIENT = 10.0
TIDY_EVERY, NEXT_TO_NOTHING = 200, 1e-25
"""Moments of what is never asked for fade; numbers near the smallest there are would take a hundred
times as long to compute with."""


@dataclass(slots=True)
class Network:
    weights: list[np.ndarray]
    biases: list[np.ndarray]
    _means: list[np.ndarray] = field(default_factory=list)
    _squares: list[np.ndarray] = field(default_factory=list)
    _steps: int = 0

    @classmethod
    def drawn(cls, sizes: Sequence[int], random: np.random.Generator) -> "Network":
        """From the number of inputs to the number of values."""
        pairs = list(pairwise(sizes))
        weights = [
            (random.standard_normal((a, b)) * np.sqrt(2 / a)).astype(np.float32) for a, b in pairs
        ]
        return cls(weights, [np.zeros(b, np.float32) for _, b in pairs])

    @property
    def parameters(self) -> list[np.ndarray]:
        return [*self.weights, *self.biases]

    @property
    def sizes(self) -> tuple[int, ...]:
        return (self.weights[0].shape[0], *(weight.shape[1] for weight in self.weights))

    @property
    def is_sound(self) -> bool:
        return all(bool(np.isfinite(parameter).all()) for parameter in self.parameters)

    def copy(self) -> "Network":
        return Network([w.copy() for w in self.weights], [b.copy() for b in self.biases])

    def follow(self, other: "Network", share: float) -> None:
        """A step of so much towards another network."""
        for mine, its in zip(self.parameters, other.parameters, strict=True):
            mine += share * (its - mine)

    def __call__(self, states: np.ndarray) -> np.ndarray:
        return self._layers(states)[-1]

    def _layers(self, states: np.ndarray) -> list[np.ndarray]:
        layers = [np.asarray(states, np.float32)]
        last = len(self.weights) - 1
        for index, (weight, bias) in enumerate(zip(self.weights, self.biases, strict=True)):
            value = layers[-1] @ weight + bias
            layers.append(value if index == last else np.maximum(value, 0))
        return layers

    def descend(self, states: np.ndarray, slopes: np.ndarray, rate: float) -> None:
        """`slopes` is how the loss grows with each value, by state."""
        layers = self._layers(states)
        gradients: list[np.ndarray] = []
        bias_gradients: list[np.ndarray] = []
        slope = slopes.astype(np.float32)
        for index in reversed(range(len(self.weights))):
            gradients.insert(0, layers[index].T @ slope)
            bias_gradients.insert(0, slope.sum(0))
            slope = (slope @ self.weights[index].T) * (layers[index] > 0)
        self._adam([*gradients, *bias_gradients], rate)

    def _adam(self, gradients: Sequence[np.ndarray], rate: float) -> None:
        if not self._means:
            self._means = [np.zeros_like(p) for p in self.parameters]
            self._squares = [np.zeros_like(p) for p in self.parameters]
        self._steps += 1
        if self._steps % TIDY_EVERY == 0:
            for moment in (*self._means, *self._squares):
                moment[np.abs(moment) < NEXT_TO_NOTHING] = 0.0
        norm = float(np.sqrt(sum(float((g * g).sum()) for g in gradients)))
        scale = min(1.0, MAX_GRADIENT / norm) if norm > 0 else 1.0
        fading = np.sqrt(1 - BETA_2**self._steps) / (1 - BETA_1**self._steps)
        for parameter, gradient, mean, square in zip(
            self.parameters, gradients, self._means, self._squares, strict=True
        ):
            step = gradient * scale
            mean += (1 - BETA_1) * (step - mean)
            square += (1 - BETA_2) * (step * step - square)
            parameter -= rate * fading * mean / (np.sqrt(square) + TINY)
