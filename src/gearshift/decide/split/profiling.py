"""The light profiling stage: what every legal split of a region may take, before any is chosen.

Must not know where speeds come from. One undivided engine's time is measured or foreseen; the rest
follows from shares of the work over what is left of each engine. What came of a choice corrects its
estimate from then on.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from gearshift.decide.split.actions import ACTIONS, NAMES
from gearshift.decide.split.view import EngineView, SplitView, speeds

NEWS = 0.3
"""How much the last calls count in what is known of a split that was tried before."""


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
    """Of one region: how many times as long as estimated each split took that was tried."""

    factors: dict[str, float] = field(default_factory=dict)

    def note(self, view: SplitView, action: int, took_s: float) -> None:
        """What calls took on it; the view is from before them."""
        name = NAMES[action]
        if name not in view.estimates_s or took_s <= 0:
            return
        off = took_s / view.estimates_s[name]
        before = self.factors.get(name)
        self.factors[name] = off if before is None else before * off**NEWS


def seen(
    region: Facts,
    engines: tuple[EngineView, EngineView],
    *,
    in_force: int,
    legal: Iterable[int],
    alone_s: float,
    experience: Experience,
) -> SplitView:
    """A view of it, with an estimate for every legal action."""
    foreseen_s = estimates_s(legal, alone_s, speeds(engines))
    factors = experience.factors
    return SplitView(
        engines=engines,
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


def estimates_s(legal: Iterable[int], alone_s: float, paces: Sequence[float]) -> dict[str, float]:
    """By the action's name; `alone_s` is what one undisturbed engine takes, `paces` what each can
    do for us now, as a share of that."""
    whole = sum(paces)
    found = {}
    for index in legal:
        given = ACTIONS[index].shares
        shares = [pace / whole for pace in paces] if given is None else given
        found[NAMES[index]] = max(
            alone_s * share / pace for share, pace in zip(shares, paces, strict=True)
        )
    return found
