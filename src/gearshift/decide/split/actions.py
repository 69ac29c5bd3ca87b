"""The splits there are to choose from, over two engines, each with a name.

Must not know what any of them takes.
"""

from dataclasses import dataclass

from gearshift.ir.topology import team
from gearshift.plan.split import COLUMNS, DEPTH, INTERLEAVED, ROWS, SPATIAL, Split

NUM_ENGINES = 2
SHARES = ((1, 1), (2, 1), (1, 2), (3, 1), (1, 3))


@dataclass(frozen=True, slots=True, kw_only=True)
class Action:
    split: Split | None
    member: int = 0
    """Who does it all, if it is not divided."""

    @property
    def name(self) -> str:
        return f"none {self.member}" if self.split is None else str(self.split)

    def engine(self, engines: tuple[str, str]) -> str:
        return engines[self.member] if self.split is None else team(engines)

    @property
    def shares(self) -> tuple[float, float] | None:
        """Of the work, for each engine; None if they follow."""
        if self.split is None:
            return (1.0, 0.0) if self.member == 0 else (0.0, 1.0)
        if self.split.how == ROWS and self.split.shares is None:
            return None
        one, other = self.split.shares or (1, 1)
        return one / (one + other), other / (one + other)


def _all() -> tuple[Action, ...]:
    undivided = [Action(split=None, member=member) for member in range(NUM_ENGINES)]
    plain = [Split(how=how) for how in (ROWS, INTERLEAVED, COLUMNS, DEPTH, SPATIAL)]
    shared = [Split(how=ROWS, shares=shares) for shares in SHARES]
    heights = [Split(how=SPATIAL, shares=shares) for shares in SHARES[1:]]
    return (*undivided, *(Action(split=split) for split in (*plain, *shared, *heights)))


ACTIONS = _all()
NAMES = tuple(action.name for action in ACTIONS)
FOLLOW = NAMES.index(ROWS)
