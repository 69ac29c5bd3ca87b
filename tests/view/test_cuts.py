"""Regions that divide and merge, drawn over time."""

from dataclasses import replace
from xml.etree import ElementTree

from view.stories import story

from gearshift.view.cuts import cuts_chart
from gearshift.view.report import page
from gearshift.view.story import Cut, Strip

ONE = (Strip(first=0, last=9, backend="onnxruntime", about="all"),)
THREE = (
    Strip(first=0, last=3, backend="onnxruntime", about="before"),
    Strip(first=4, last=4, backend="eager", about="the <slow> one"),
    Strip(first=5, last=9, backend="onnxruntime", about="after"),
)
CUTS = [
    Cut(begin_s=0.0, end_s=4.0, strips=ONE),
    Cut(begin_s=4.0, end_s=10.0, strips=THREE),
]


def test_each_stretch_has_a_block_for_each_region() -> None:
    drawn = ElementTree.fromstring(cuts_chart(CUTS))
    blocks = [(float(r.attrib["x"]), float(r.attrib["height"])) for r in drawn.iter("rect")]
    assert len(blocks) == 4
    (x, whole), *parts = blocks
    assert {left for left, _ in parts} != {x}, "divided later"
    assert abs(sum(height for _, height in parts) - whole) < 1, "the same ops"


def test_the_page_has_it_only_where_regions_changed() -> None:
    assert "Regions over time" not in page(story())
    assert "Regions over time" not in page(replace(story(), cuts=CUTS[:1]))
    text = page(replace(story(), cuts=CUTS))
    assert "Regions over time" in text
    assert "the &lt;slow&gt; one" in text
