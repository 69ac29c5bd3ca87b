"""The trace: rows for engines, instants for decisions, curves for counters."""

import json
from dataclasses import replace
from itertools import pairwise
from typing import Any

import pytest
from view.stories import story

from gearshift.view.story import Span
from gearshift.view.trace import trace


def events(kind: str, made: dict[str, Any]) -> list[dict[str, Any]]:
    return [event for event in made["traceEvents"] if event["ph"] == kind]


def span(region: str, begin_s: float, end_s: float) -> Span:
    return Span(
        region=region,
        engine="caller",
        backend="eager",
        rewrite="eager",
        begin_s=begin_s,
        end_s=end_s,
    )


def test_regions_are_on_the_rows_of_their_engines() -> None:
    made = json.loads(json.dumps(trace(story())))
    rows = {e["tid"]: e["args"]["name"] for e in events("M", made) if e["name"] == "thread_name"}
    regions = [e for e in events("X", made) if e["name"] != "call"]
    assert {rows[e["tid"]].split(" ")[0] for e in regions} == {"cpu:0", "cpu:1"}
    assert all(e["dur"] == pytest.approx(0.2e6) for e in regions)
    assert [e["ts"] for e in events("i", made)] == [2.0e6]
    assert {e["name"] for e in events("C", made)} == {"neighbours"}


def test_what_overlaps_on_one_engine_gets_a_row_of_its_own() -> None:
    """Two threads call at once: bars on one row must not cross."""
    both = [[span("a", begin_s, begin_s + 1)] for begin_s in (0.0, 0.5, 1.2)]
    made = trace(replace(story(), spans=both))
    regions = [e for e in events("X", made) if e["name"] == "a"]
    for row in {e["tid"] for e in regions}:
        mine = sorted((e["ts"], e["ts"] + e["dur"]) for e in regions if e["tid"] == row)
        assert all(end <= begin for (_, end), (begin, _) in pairwise(mine))


def test_the_order_of_regions_in_a_call_makes_no_rows() -> None:
    """A plan's regions are not listed as they run."""
    made = trace(replace(story(), spans=[[span("b", 1.0, 2.0), span("a", 0.0, 1.0)]]))
    assert len({e["tid"] for e in events("X", made) if e["name"] in "ab"}) == 1
