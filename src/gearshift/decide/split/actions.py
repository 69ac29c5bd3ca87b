"""The splits there are to choose from, over two engines, each with a name.

Must not know what any of them takes.
"""

from dataclasses import dataclass

from gearshift.plan.split import COLUMNS, DEPTH, INTERLEAVED, ROWS, SPATIAL, Split

NUM_ENGINES = 2
SHARES = ((1, 1), (2, 1), (1, 2), (3, 1), (1, 3))


@dataclass(frozen=True, slots=True, kw_only=True)
class Action:
    split: Split | None
    member: int | None = None
    """Who does it all, if it is not divided; None: both, as the backend divides each op."""

    @property
    def name(self) -> str:
        if self.split is not None:
            return str(self.split)
        return f"none {'both' if self.member is None else self.member}"

    @property
    def shares(self) -> tuple[float, float] | None:
        """Of the work, for each engine; None if they follow."""
        if self.split is None and self.member is not None:
            return (1.0, 0.0) if self.member == 0 else (0.0, 1.0)
        if self.split is None:
            return (0.5, 0.5)
        if self.split.how == ROWS and self.split.shares is None:
            return None
        one, other = self.split.shares_of(NUM_ENGINES)
        return one / (one + other), other / (one + other)


def _all() -> tuple[Action, ...]:
    undivided = [Action(split=None, member=member) for member in (0, 1, None)]
    plain = [Split(how=how) for how in (ROWS, INTERLEAVED, COLUMNS, DEPTH, SPATIAL)]
    shared = [Split(how=ROWS, shares=shares) for shares in SHARES]
    heights = [Split(how=SPATIAL, shares=shares) for shares in SHARES[1:]]
    return (*undivided, *(Action(split=split) for split in (*plain, *shared, *heights)))


ACTIONS = _all()
NAMES = tuple(action.name for action in ACTIONS)
FOLLOW = NAMES.index(ROWS)
BOTH = NAMES.index("none both")
SPLITS = tuple(action.split for action in ACTIONS if action.split is not None)
