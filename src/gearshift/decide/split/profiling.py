"""The light profiling stage: what every legal split of a region may take, before any is chosen.

Must not know where speeds come from. One undivided engine's time is measured or foreseen; the rest
follows from shares of the work over what is left of each engine.
"""

from collections.abc import Iterable, Sequence

from gearshift.decide.split.actions import ACTIONS, NAMES


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
