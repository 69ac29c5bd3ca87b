"""A total that only grows, looked at now and then.

Must not know what is counted.
"""


class Growth:
    __slots__ = ("_now_s", "_total")

    def __init__(self) -> None:
        self._now_s = 0.0
        self._total: float | None = None

    def since_last(self, now_s: float, total: float | None) -> tuple[float, float] | None:
        """Seconds passed and what was added; None at first, and after anything implausible."""
        before, then_s = self._total, self._now_s
        self._total, self._now_s = total, now_s
        if before is None or total is None or total < before or now_s <= then_s:
            return None
        return now_s - then_s, total - before

    def per_s(self, now_s: float, total: float | None) -> float | None:
        step = self.since_last(now_s, total)
        return None if step is None else step[1] / step[0]
