"""How the regions of a model changed over time: a column for each stretch, a block for each region.

Must not know why they changed.
"""

from collections.abc import Mapping, Sequence

from gearshift.view.palette import colours
from gearshift.view.story import Cut, Strip
from gearshift.view.svg import Scale, element, label, linear, picture, ticks, tooltip

WIDTH, HEIGHT = 960.0, 260.0
LEFT, BOTTOM, TOP = 8.0, 26.0, 6.0


def cuts_chart(cuts: Sequence[Cut]) -> str:
    """Empty if there was never more than one region."""
    if not any(len(cut.strips) > 1 for cut in cuts):
        return ""
    css = colours(strip.backend for cut in cuts for strip in cut.strips)
    across = linear(cuts[0].begin_s, cuts[-1].end_s, LEFT, WIDTH - LEFT)
    num_ops = 1 + max(strip.last for cut in cuts for strip in cut.strips)
    down = linear(0, num_ops, TOP, HEIGHT - BOTTOM)
    blocks = [_block(cut, strip, across, down, css) for cut in cuts for strip in cut.strips]
    return picture(WIDTH, HEIGHT, "regions over time", *blocks, *_axis(cuts, across))


def _block(cut: Cut, strip: Strip, across: Scale, down: Scale, css: Mapping[str, str]) -> str:
    x, y = across(cut.begin_s), down(strip.first)
    return element(
        "rect",
        tooltip(strip.about),
        x=x,
        y=y,
        width=max(1.0, across(cut.end_s) - x),
        height=max(1.0, down(strip.last + 1) - y),
        class_=f"strip {css[strip.backend]}",
    )


def _axis(cuts: Sequence[Cut], across: Scale) -> list[str]:
    marks = ticks(cuts[0].begin_s, cuts[-1].end_s)
    return [label(f"{mark:g} s", across(mark), HEIGHT - 8, text_anchor="middle") for mark in marks]
