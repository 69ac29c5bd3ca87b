"""What was seen, kept for looking back: the last minutes whole, what is older thinned out.

Must not know who looks.
"""

from collections.abc import Iterator

from gearshift.ir.snapshot import Snapshot

MAX_KEPT = 2048


class History:
    def __init__(self) -> None:
        self._kept: list[Snapshot] = []

    def add(self, snapshot: Snapshot) -> None:
        self._kept.append(snapshot)
        if len(self._kept) > MAX_KEPT:
            half = MAX_KEPT // 2
            self._kept = self._kept[:half:2] + self._kept[half:]

    def __iter__(self) -> Iterator[Snapshot]:
        return iter(list(self._kept))

    def __len__(self) -> int:
        return len(self._kept)
