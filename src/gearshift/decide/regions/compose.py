"""The best way to run pieces one after the other, each by one of several entries: an exact search.

Must not know what a piece is.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType

NOTHING: Mapping[str, float] = MappingProxyType({})


@dataclass(frozen=True, slots=True, kw_only=True)
class Composed:
    choices: tuple[str, ...]
    """For each piece."""
    seconds: float


def compose(
    alone_s: Sequence[Mapping[str, float]],
    *,
    joined_s: float,
    apart_s: Sequence[float],
    more_s: Mapping[str, float] = NOTHING,
) -> Composed | None:
    """`alone_s`: for each piece what it takes by each entry, as a region by itself. Neighbours by
    the same entry are one region, which takes `joined_s` less; between others lies a boundary,
    which costs what `apart_s` says for each place, and `more_s` beside an entry that is named
    there. None if a piece was measured by nothing."""
    if not alone_s or not all(alone_s):
        return None
    best: dict[str, tuple[float, tuple[str, ...]]]
    best = {entry: (seconds, (entry,)) for entry, seconds in alone_s[0].items()}
    for piece_s, between_s in zip(alone_s[1:], apart_s, strict=True):
        best = {
            entry: _reach(best, entry, seconds, joined_s, between_s, more_s)
            for entry, seconds in piece_s.items()
        }
    seconds, choices = min(best.values())
    return Composed(choices=choices, seconds=seconds)


def _reach(
    best: Mapping[str, tuple[float, tuple[str, ...]]],
    entry: str,
    seconds: float,
    joined_s: float,
    between_s: float,
    more_s: Mapping[str, float],
) -> tuple[float, tuple[str, ...]]:
    def step_s(last: str) -> float:
        if last == entry:
            return -joined_s
        return between_s + max(more_s.get(last, 0.0), more_s.get(entry, 0.0))

    ways = [(so_far_s + seconds + step_s(last), told) for last, (so_far_s, told) in best.items()]
    so_far_s, choices = min(ways)
    return so_far_s, (*choices, entry)
