"""A story as a Chrome trace: open it in Perfetto or chrome://tracing.

Must not know files.
"""

from collections.abc import Iterator
from typing import Any

from gearshift.view.story import Story

PID = 1
MICRO = 1e6


def trace(story: Story) -> dict[str, Any]:
    """Regions over engines, one row each; decisions as instants; counters as curves."""
    rows = _Rows()
    events = [*_calls(story, rows), *_decisions(story), *_counters(story)]
    names = [_meta("process_name", 0, story.model)]
    names += [_meta("thread_name", row, name) for name, row in rows.known.items()]
    order = rows.known.values()
    names += [_meta("thread_sort_index", row, row, key="sort_index") for row in order]
    return {
        "traceEvents": [*names, *events],
        "displayTimeUnit": "ms",
        "otherData": dict(story.facts),
    }


class _Rows:
    """One for each engine; another where calls of several threads overlap on it."""

    def __init__(self) -> None:
        self.known: dict[str, int] = {}
        self._busy_until_s: dict[str, float] = {}

    def take(self, name: str, begin_s: float, end_s: float) -> int:
        number = 1
        label = name
        while self._busy_until_s.get(label, 0.0) > begin_s:
            number += 1
            label = f"{name} ({number})"
        self._busy_until_s[label] = end_s
        return self.known.setdefault(label, len(self.known) + 1)


def _calls(story: Story, rows: _Rows) -> Iterator[dict[str, Any]]:
    """In the order they began, whatever call they belong to: rows are taken and left in time."""
    ends = [(min(s.begin_s for s in c), max(s.end_s for s in c)) for c in story.spans if c]
    for begin_s, end_s in sorted(ends):
        row = rows.take("calls", begin_s, end_s)
        yield _complete("call", "call", row, begin_s, end_s, {})
    spans = [span for spans in story.spans for span in spans]
    for span in sorted(spans, key=lambda span: span.begin_s):
        row = rows.take(span.engine, span.begin_s, span.end_s)
        told = {"engine": span.engine, "rewrite": span.rewrite, "share": span.share}
        yield _complete(span.region, span.rewrite, row, span.begin_s, span.end_s, told)


def _decisions(story: Story) -> Iterator[dict[str, Any]]:
    for decision in story.decisions:
        yield {
            "name": f"{decision.summary or decision.plan}: {decision.outcome}",
            "cat": "decision",
            "ph": "i",
            "s": "g",
            "pid": PID,
            "tid": 0,
            "ts": decision.at_s * MICRO,
            "args": {
                "plan": decision.plan,
                "reason": decision.reason,
                "outcome": decision.outcome,
                "predicted_gain": decision.predicted_gain,
                "measured_gain": decision.measured_gain,
            },
        }


def _counters(story: Story) -> Iterator[dict[str, Any]]:
    for series in story.counters:
        for at_s, value in series.points:
            yield {
                "name": series.name,
                "ph": "C",
                "pid": PID,
                "ts": at_s * MICRO,
                "args": {"value": value},
            }


def _complete(
    name: str, category: str, row: int, begin_s: float, end_s: float, told: dict[str, Any]
) -> dict[str, Any]:
    return {
        "name": name,
        "cat": category,
        "ph": "X",
        "pid": PID,
        "tid": row,
        "ts": begin_s * MICRO,
        "dur": (end_s - begin_s) * MICRO,
        "args": told,
    }


def _meta(what: str, row: int, value: object, *, key: str = "name") -> dict[str, Any]:
    return {"name": what, "ph": "M", "pid": PID, "tid": row, "args": {key: value}}
