"""The light profiling stage: what every legal split of a region may take, before any is chosen.

Must not know where speeds come from. One undivided engine's time is measured or foreseen; the rest
follows from shares of the work over what is left of each engine.
"""

from collections.abc import Iterable, Sequence
from typing import Protocol

from gearshift.decide.split.actions import ACTIONS, NAMES
from gearshift.decide.split.view import EngineView, SplitView


class Facts(Protocol):
    """Of a region: what does not change from call to call."""

    @property
    def kind(self) -> str: ...

    @property
    def num_rows(self) -> int: ...

    @property
    def flops(self) -> float: ...

    @property
    def moved_bytes(self) -> float: ...

    @property
    def item_bytes(self) -> int: ...


def seen(
    region: Facts,
    engines: tuple[EngineView, EngineView],
    *,
    in_force: int,
    legal: Iterable[int],
    alone_s: float,
) -> SplitView:
    """A view of it, with an estimate for every legal action."""
    return SplitView(
        engines=engines,
        kind=region.kind,
        num_rows=region.num_rows,
        flops=region.flops,
        moved_bytes=region.moved_bytes,
        item_bytes=region.item_bytes,
        in_force=NAMES[in_force],
        alone_s=alone_s,
        estimates_s=estimates_s(legal, alone_s, [engine.speed for engine in engines]),
    )


def estimates_s(legal: Iterable[int], alone_s: float, speeds: Sequence[float]) -> dict[str, float]:
    """By the action's name; `alone_s` is what one undisturbed engine takes, `speeds` what each can
    do for us now, as a share of that."""
    whole = sum(speeds)
    found = {}
    for index in legal:
        given = ACTIONS[index].shares
        shares = [speed / whole for speed in speeds] if given is None else given
        found[NAMES[index]] = max(
            alone_s * share / speed for share, speed in zip(shares, speeds, strict=True)
        )
    return found
