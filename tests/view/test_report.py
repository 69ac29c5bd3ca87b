"""The page: whole, well-formed, offline, and readable for few regions and for many."""

import re
from dataclasses import replace
from xml.etree import ElementTree

import pytest
from view.stories import boxes, story

from gearshift.view.regions import regions_chart
from gearshift.view.report import page
from gearshift.view.story import Story

SVG = re.compile(r"<svg.*?</svg>", re.DOTALL)


@pytest.mark.capability("core.report")
def test_the_page_tells_everything_and_needs_nothing_else() -> None:
    text = page(story())
    for title in ("Latency", "Plan in force", "One call", "Where the time went", "What was tried"):
        assert f"<h2>{title}</h2>" in text
    for part in ("serves: 50% faster", "may be better", "unavailable", "0.6%", "a &lt;cpu&gt;"):
        assert part in text
    assert not re.search(r"https?://|<script|<link|@import|src=", text), "nothing is loaded"
    assert "prefers-color-scheme: dark" in text
    assert "@media print" in text


def test_drawings_are_well_formed_and_mark_swaps_and_neighbours() -> None:
    drawings = SVG.findall(page(story()))
    assert len(drawings) == 4, "latency, regions, one call, one counter"
    for drawing in drawings:
        ElementTree.fromstring(drawing)
    assert 'class="swap"' in drawings[0]
    assert 'class="crowd"' in drawings[0]
    assert drawings[0].count("<circle") < 700, "calls close together share a mark"


def test_what_users_name_is_text_not_markup() -> None:
    text = page(story(model="<script>alert(1)</script>"))
    assert "<script>" not in text


@pytest.mark.parametrize("count", [1, 3, 40, 300])
def test_regions_are_drawn_few_or_many(count: int) -> None:
    drawn = ElementTree.fromstring(regions_chart(boxes(count)))
    _, _, width, height = map(float, drawn.attrib["viewBox"].split())
    rectangles = list(drawn.iter("rect"))
    assert len(rectangles) == count
    places = {(r.attrib["x"], r.attrib["y"]) for r in rectangles}
    assert len(places) == count, "no two in one place"
    for r in rectangles:
        assert float(r.attrib["x"]) + float(r.attrib["width"]) <= width
        assert float(r.attrib["y"]) + float(r.attrib["height"]) <= height
    assert height < 1200, "on one screen or two"


def test_a_story_without_calls_or_decisions_is_a_page_too() -> None:
    text = page(Story(model="new", facts={}))
    assert "No calls yet" in text
    assert "Nothing was decided" in text


def test_a_call_that_took_for_ever_does_not_flatten_the_others() -> None:
    long = replace(story().calls[0], call_s=100.0)
    drawn = ElementTree.fromstring(
        SVG.findall(page(replace(story(), calls=[*story().calls, long])))[0]
    )
    heights = {round(float(c.attrib["cy"])) for c in drawn.iter("circle")}
    assert max(heights) - min(heights) > 50


def test_the_headline_compares_the_same_part_of_the_run() -> None:
    text = page(replace(story(), end_s=0.01, reference_end_s=0.03, reference="reference"))
    assert "3.00x" in text
    assert "as fast as reference" in text
    assert "as fast as" not in page(replace(story(), end_s=None))


def test_what_was_left_out_is_counted_all_the_same() -> None:
    last = replace(story().decisions[0], number=700)
    assert "<b>700</b><span>decisions</span>" in page(replace(story(), decisions=[last]))
