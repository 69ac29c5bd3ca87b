"""Which colour stands for what: named classes, whose colours the page's style sets.

Must not know the colours themselves.
"""

from collections.abc import Iterable

NUM_COLOURS = 8


def colours(names: Iterable[str]) -> dict[str, str]:
    """A class for each name, in the order they come; all beyond the last colour share one more."""
    return {name: f"c{min(i, NUM_COLOURS)}" for i, name in enumerate(dict.fromkeys(names))}
