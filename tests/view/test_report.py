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
    text = page(replace(story(), num_decisions=700, num_swaps=30))
    assert "<b>700</b><span>decisions</span>" in text
    assert "<b>30</b><span>swaps</span>" in text
    assert "699 earlier ones are not kept" in text


def test_many_regions_are_told_in_text_too() -> None:
    assert page(story(regions=100)).count("<li>") == 100
    assert "<li>" not in page(story(regions=20))


def test_shares_are_of_the_whole_call() -> None:
    text = page(replace(story(regions=1), call_s=0.004, between_s=0.003))
    assert "in no region" in text
    assert "<td class=number>25%</td>" in text
    assert "<td class=number>75%</td>" in text


def test_the_model_as_it_was_is_drawn_call_by_call() -> None:
    calls = [replace(call, call_s=0.02 + 0.02 * (call.at_s > 5)) for call in story().calls]
    flat, drawn = (SVG.findall(page(replace(story(), reference_calls=c)))[0] for c in ([], calls))
    heights = [
        {point.split(",")[1] for point in re.search(r'points="([^"]*)"', text)[1].split()}
        for text in (flat, drawn)
    ]
    assert list(map(len, heights)) == [1, 2]


def test_parts_of_a_model_are_drawn_one_after_the_other() -> None:
    alone = [replace(box, feeds=(), part=index) for index, box in enumerate(boxes(3))]
    drawn = ElementTree.fromstring(regions_chart(alone))
    places = [(float(r.attrib["x"]), float(r.attrib["y"])) for r in drawn.iter("rect")]
    assert places == sorted(places)
    assert len({y for _, y in places}) == 1
