"""The learning curve as a picture."""

from itertools import pairwise
from xml.etree import ElementTree

from gearshift.view.curve import LEFT, RIGHT, curve_picture

SVG = "{http://www.w3.org/2000/svg}"


def test_a_picture_of_its_own_with_everybody_named() -> None:
    points = [(1000, 0.5), (2000, 0.9), (3000, 0.8)]
    others = {"share": 0.85, "greedy": 0.852, "always rows <1:1>": 0.6}
    picture = curve_picture(points, others, kept=points[1], title="an agent")
    drawn = ElementTree.fromstring(picture)
    assert drawn.tag == f"{SVG}svg"
    places = {
        "".join(text.itertext()): (float(text.get("x", "0")), float(text.get("y", "0")))
        for text in drawn.iter(f"{SVG}text")
    }
    named = ("share 0.850", "greedy 0.852", "always rows <1:1> 0.600", "the agent 0.900, step 2000")
    assert set(named) <= set(places)
    assert {"share of the oracle's speed", "steps"} <= set(places), "what is along each side"
    heights = sorted(y for x, y in places.values() if x > RIGHT)
    assert min(b - a for a, b in pairwise(heights)) > 10, "none covers another"
    (dot,) = drawn.iter(f"{SVG}circle")
    assert float(dot.get("cx", "0")) == places["kept"][0]
    assert LEFT < places["kept"][0] < RIGHT, "the one that was kept, not the last"
