"""What happens around the model while it is measured: phases, drawn from a seed.

Must not know who is measured.
"""

import random
from collections.abc import Sequence
from dataclasses import dataclass

from gearshift.busy import KINDS, Neighbour

LONG = 2
"""So many times as long as a phase in between is one that is alone."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Phase:
    neighbours: tuple[Neighbour, ...]
    seconds: float


def traces(
    seed: int, cores: Sequence[int], seconds: float, changes: int
) -> dict[str, tuple[Phase, ...]]:
    """`cores` are those of the contenders; `seconds` is how long a phase lasts at the middle;
    `changes`, how many there are."""
    draw = random.Random(seed)
    one = (_neighbour(draw, cores),)
    return {
        "quiet": (Phase(neighbours=(), seconds=LONG * seconds),),
        "neighbour": (Phase(neighbours=one, seconds=LONG * seconds),),
        "changing": _changing(draw, cores, seconds, changes),
    }


def _changing(
    draw: random.Random, cores: Sequence[int], seconds: float, changes: int
) -> tuple[Phase, ...]:
    """Quiet and busy by turns; which and how many come anew each time."""
    phases = []
    for index in range(changes):
        most = max(1, len(cores) // 2) if draw.random() < 0.75 else len(cores)
        count = 0 if index % 2 == 0 else draw.randint(1, most)
        neighbours = tuple(_neighbour(draw, cores) for _ in range(count))
        length_s = seconds * draw.uniform(0.7, 1.3)
        phases.append(Phase(neighbours=neighbours, seconds=length_s))
    return tuple(phases)


def _neighbour(draw: random.Random, cores: Sequence[int]) -> Neighbour:
    kind = draw.choice(sorted(KINDS))
    core = draw.choice([None, *cores])
    return Neighbour(kind=kind, core=core)
