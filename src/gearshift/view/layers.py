"""The recurrent layers of a model over time: a row for each layer, a colour for each setting.

Must not know why a setting changed.
"""

from collections.abc import Mapping, Sequence

from gearshift.view.palette import colours
from gearshift.view.story import Stride
from gearshift.view.svg import Scale, element, label, linear, picture, ticks, tooltip

WIDTH, ROW, LEFT, BOTTOM = 960.0, 26.0, 110.0, 26.0


def layers_chart(strides: Sequence[Stride]) -> str:
    """Empty if there are none."""
    if not strides:
        return ""
    rows = {name: i for i, name in enumerate(dict.fromkeys(stride.layer for stride in strides))}
    css = colours(stride.setting for stride in strides)
    begin_s = min(stride.begin_s for stride in strides)
    end_s = max(stride.end_s for stride in strides)
    across = linear(begin_s, end_s, LEFT, WIDTH - 8)
    height = ROW * len(rows) + BOTTOM
    names = [label(name, 4, ROW * row + 17) for name, row in rows.items()]
    blocks = [_block(stride, rows[stride.layer], across, css) for stride in strides]
    blocks += [_switch(s, rows[s.layer], across) for s in strides if s.switched]
    marks = [
        label(f"{mark:g} s", across(mark), height - 8, text_anchor="middle")
        for mark in ticks(begin_s, end_s)
    ]
    return picture(WIDTH, height, "layers over time", *names, *blocks, *marks)


def _block(stride: Stride, row: int, across: Scale, css: Mapping[str, str]) -> str:
    x = across(stride.begin_s)
    told = f"{stride.layer}: {stride.setting}, {stride.step_s * 1e6:.1f} us a step"
    return element(
        "rect",
        tooltip(told),
        x=x,
        y=ROW * row + 3,
        width=max(1.0, across(stride.end_s) - x),
        height=ROW - 6,
        class_=f"strip {css[stride.setting]}",
    )


def _switch(stride: Stride, row: int, across: Scale) -> str:
    """A line where it began within a sequence."""
    x, y = across(stride.begin_s), ROW * row
    told = f"{stride.layer} goes on {stride.setting} in the middle of a sequence"
    return element("line", tooltip(told), x1=x, x2=x, y1=y, y2=y + ROW, class_="switch")
