"""The light profiling stage: what every legal split of a region may take, before any is chosen.

Must not know where speeds come from. One undivided engine's time is measured or foreseen; the rest
follows from shares of the work over what is left of each engine, and from what dividing so costs as
a rule. What came of a choice corrects its
estimate from then on.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from gearshift.decide.split.actions import ACTIONS, NAMES, Action
from gearshift.decide.split.view import ALIKE, Engines, Speeds, SplitView, own_speeds, speeds
from gearshift.plan.split import COLUMNS, DEPTH, INTERLEAVED, ROWS, SPATIAL, apportioned

OVERHEAD = {ROWS: 1.1, INTERLEAVED: 1.2, COLUMNS: 1.7, DEPTH: 1.2, SPATIAL: 1.2}
BOTH_OVERHEAD = 1.1
"""How many times as long as its share of the work a part takes: cutting, joining and handing over,
rows computed twice where kernels reach over a border, less to do at a time. Geometric means over
the regions that agents are trained on (`sim/profiles.json`); undivided over both engines, too."""
NEWS = 0.3
"""How much the last calls count in what is known of a split that was tried before."""
KEPT = 0.98
"""What is left of how much slower an engine is known to be, each time it is not seen at work: so it
is asked again."""


class Facts(Protocol):
    """Of a region: what does not change from call to call."""

    @property
    def kind(self) -> str: ...

    @property
    def dims(self) -> tuple[int, ...]: ...

    @property
    def num_rows(self) -> int: ...

    @property
    def flops(self) -> float: ...

    @property
    def moved_bytes(self) -> float: ...

    @property
    def item_bytes(self) -> int: ...


@dataclass(slots=True)
class Experience:
    """Of one region: how many times as long as foreseen each split took that was tried, and how
    fast each engine is by itself."""

    factors: dict[str, float] = field(default_factory=dict)
    own: Speeds = ALIKE

    def see(self, engines: Engines) -> None:
        one, other = self.own
        self.own = own_speeds(engines) or (one**KEPT, other**KEPT)

    def note(
        self, region: Facts, engines: Engines, action: int, *, alone_s: float, took_s: float
    ) -> None:
        """What calls took on it, and the engines as they were meanwhile: who came or went is in
        their speeds, and not held against the split."""
        if took_s <= 0:
            return
        name, paces = NAMES[action], speeds(engines, self.own)
        off = took_s / estimates_s([action], alone_s, paces, region.num_rows)[name]
        before = self.factors.get(name, off)
        self.factors[name] = before * (off / before) ** NEWS


def seen(
    region: Facts,
    engines: Engines,
    *,
    in_force: int,
    legal: Iterable[int],
    alone_s: float,
    experience: Experience,
) -> SplitView:
    """A view of it, with an estimate for every legal action."""
    paces = speeds(engines, experience.own)
    foreseen_s = estimates_s(legal, alone_s, paces, region.num_rows)
    factors = experience.factors
    return SplitView(
        engines=engines,
        speeds=paces,
        kind=region.kind,
        dims=region.dims,
        num_rows=region.num_rows,
        flops=region.flops,
        moved_bytes=region.moved_bytes,
        item_bytes=region.item_bytes,
        in_force=NAMES[in_force],
        alone_s=alone_s,
        foreseen_s=foreseen_s,
        estimates_s={name: s * factors.get(name, 1.0) for name, s in foreseen_s.items()},
        tried=frozenset(factors),
    )


def estimates_s(
    legal: Iterable[int], alone_s: float, paces: Sequence[float], num_rows: int
) -> dict[str, float]:
    """By the action's name; `alone_s` is what one undisturbed engine takes, `paces` what each can
    do for us now, as a share of that."""
    found = {}
    for index in legal:
        shares = _shares(ACTIONS[index], paces, num_rows)
        longest_s = max(alone_s * share / pace for share, pace in zip(shares, paces, strict=True))
        found[NAMES[index]] = _overhead(ACTIONS[index], shares) * longest_s
    return found


def _overhead(action: Action, shares: Sequence[float]) -> float:
    """None where one engine does it all."""
    if min(shares) == 0:
        return 1.0
    return BOTH_OVERHEAD if action.split is None else OVERHEAD[action.split.how]


def _shares(action: Action, paces: Sequence[float], num_rows: int) -> Sequence[float]:
    """Of the work, for each engine; rows stay whole."""
    split = action.split
    if split is None or split.how != ROWS:
        assert action.shares is not None, "only rows follow"
        return action.shares
    rows = apportioned(num_rows, [1 / share for share in split.shares or paces])
    return [count / num_rows for count in rows]
