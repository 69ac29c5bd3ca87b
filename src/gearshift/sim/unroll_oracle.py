"""The settings that would have been best for a call, for who knows everything about it.

Exact on one engine, for two directions and for two layers; for more layers over a team, what no
change of one layer makes better. Must not know who chose what.
"""

from itertools import product

from gearshift.decide.unroll.actions import CHOICES
from gearshift.decide.unroll.view import Settings
from gearshift.sim.unroll_cases import Case, Episode
from gearshift.sim.unroll_course import Call, Chunks, chunks_of, run

EXACT_LAYERS = 2
SWEEPS = 4
"""No layer is looked at more often."""
Picked = tuple[int, ...]
"""For each layer, the number of its choice."""


def oracle_s(case: Case, call: Call) -> float:
    """One setting for each layer from the first step to the last, within the memory limit."""
    return call.noise * _Search(case, call).best_s()


def episode_oracle_s(episode: Episode) -> float:
    """Of all calls but the first, which comes before any choice."""
    return sum(oracle_s(episode.case, call) for call in episode.calls[1:])


class _Search:
    def __init__(self, case: Case, call: Call) -> None:
        self._case, self._call = case, call
        known: dict[int, list[Chunks]] = {}
        for pace in case.paces:
            if id(pace) not in known:
                known[id(pace)] = [chunks_of(call, steps, steps, pace) for steps in CHOICES]
        self._chunks = [known[id(pace)] for pace in case.paces]
        """By layer and choice;"""
        self._work_s = [[sum(c.work_s for c in chunks) for chunks in of] for of in self._chunks]
        """and what all of them take together."""

    def best_s(self) -> float:
        """Where no layer's chunks wait for another's, each has what is least work."""
        if len(self._case.engines) == 1 or self._case.stack.num_directions > 1:
            return self._took_s(self._least())
        if self._case.stack.num_layers <= EXACT_LAYERS:
            return self._exhausted_s()
        return self._descended_s()

    def _least(self) -> Picked:
        """A layer's room does not depend on the others': one chunk at a time is computed on each
        engine, of any of them."""
        count = self._case.stack.num_layers
        fitting = [i for i, steps in enumerate(CHOICES) if self._case.fits((steps,) * count)]
        return tuple(min(fitting, key=lambda i: work_s[i]) for work_s in self._work_s)

    def _exhausted_s(self) -> float:
        best_s = float("inf")
        for picked in product(range(len(CHOICES)), repeat=self._case.stack.num_layers):
            best_s = min(best_s, self._below_s(picked, best_s))
        return best_s

    def _descended_s(self) -> float:
        """One layer after the other, from the best that is alike for all."""
        count = self._case.stack.num_layers
        found = {i: self._below_s((i,) * count, float("inf")) for i in range(len(CHOICES))}
        first = min(found, key=lambda i: found[i])
        picked, best_s = (first,) * count, found[first]
        for _ in range(SWEEPS):
            before_s = best_s
            for layer in range(count):
                picked, best_s = self._better(picked, best_s, layer)
            if best_s == before_s:
                break
        return best_s

    def _better(self, picked: Picked, best_s: float, layer: int) -> tuple[Picked, float]:
        """The best of this layer's choices."""
        best = picked
        for index in range(len(CHOICES)):
            other = (*picked[:layer], index, *picked[layer + 1 :])
            took_s = self._below_s(other, best_s)
            if took_s < best_s:
                best, best_s = other, took_s
        return best, best_s

    def _below_s(self, picked: Picked, best_s: float) -> float:
        """What it takes; infinite if it does not fit, or cannot take less than the best."""
        settings: Settings = tuple(CHOICES[index] for index in picked)
        if not self._case.fits(settings) or self._least_s(picked) >= best_s:
            return float("inf")
        return self._took_s(picked)

    def _least_s(self, picked: Picked) -> float:
        """What the engine that has the most to do takes, if it never waits."""
        groups, crowd = self._case.groups, self._call.crowd
        work_s = [sum(self._work_s[i][picked[i]] for i in group) for group in groups]
        both = zip(self._case.engines, work_s, strict=True)
        return max(crowd.end_s(cores, 0.0, seconds) for cores, seconds in both)

    def _took_s(self, picked: Picked) -> float:
        layers = [of[index] for of, index in zip(self._chunks, picked, strict=True)]
        case = self._case
        return run(case.stack, case.engines, self._call.crowd, layers).took_s
