"""The learning curve as a picture."""

from itertools import pairwise
from xml.etree import ElementTree

from gearshift.view.curve import RIGHT, curve_picture

SVG = "{http://www.w3.org/2000/svg}"


def test_a_picture_of_its_own_with_everybody_named() -> None:
    points = [(1000, 0.5), (2000, 0.8), (3000, 0.9)]
    others = {"share": 0.85, "greedy": 0.852, "always rows <1:1>": 0.6}
    drawn = ElementTree.fromstring(curve_picture(points, others, title="an agent"))
    assert drawn.tag == f"{SVG}svg"
    places = {
        "".join(text.itertext()): (float(text.get("x", "0")), float(text.get("y", "0")))
        for text in drawn.iter(f"{SVG}text")
    }
    for wanted in ("the agent 0.900", "share 0.850", "greedy 0.852", "always rows <1:1> 0.600"):
        assert wanted in places
    heights = sorted(y for x, y in places.values() if x > RIGHT)
    assert min(b - a for a, b in pairwise(heights)) > 10, "none covers another"
