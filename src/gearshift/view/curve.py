"""How an agent learned, as one picture: how near to the oracle it came, beside those that do not
learn.

Must not know what was learned.
"""

from collections.abc import Mapping, Sequence

from gearshift.view.svg import element, label, linear, polyline, ticks, tooltip

WIDTH, HEIGHT = 720.0, 340.0
LEFT, RIGHT, TOP, BOTTOM = 50.0, 530.0, 16.0, 300.0
INK, PALE, MINE = "#333333", "#b8b8b8", "#d05a2a"
OTHERS = ("#587898", "#7a9a5a", "#8a6aa8", "#3a3a3a")
APART = 13.0


def curve_picture(
    points: Sequence[tuple[int, float]], others: Mapping[str, float], *, title: str
) -> str:
    """`points` are steps and shares of the oracle; `others`, the shares that the others reach."""
    values = [value for _, value in points] + list(others.values())
    across = linear(0, points[-1][0], LEFT, RIGHT)
    up = linear(min(values) - 0.02, 1.0, BOTTOM, TOP)
    drawn = [element("rect", width=WIDTH, height=HEIGHT, fill="white")]
    for value in ticks(min(values) - 0.02, 1.0):
        y = up(value)
        drawn.append(element("line", x1=LEFT, x2=RIGHT, y1=y, y2=y, stroke=PALE, stroke_width=0.5))
        drawn.append(_text(f"{value:.2f}", LEFT - 6, y + 4, INK, text_anchor="end"))
    for step in ticks(0, points[-1][0]):
        drawn.append(_text(f"{step:g}", across(step), BOTTOM + 16, INK, text_anchor="middle"))
    drawn.append(_text("steps", (LEFT + RIGHT) / 2, BOTTOM + 34, INK, text_anchor="middle"))
    ends = {"the agent": points[-1][1], **others}
    places = _apart({name: up(value) for name, value in ends.items()})
    for index, (name, value) in enumerate(others.items()):
        colour, y = OTHERS[index % len(OTHERS)], up(value)
        dash = {"stroke": colour, "stroke_dasharray": "4 3"}
        drawn.append(element("line", x1=LEFT, x2=RIGHT, y1=y, y2=y, **dash))
        drawn.append(_text(f"{name} {value:.3f}", RIGHT + 6, places[name] + 4, colour))
    line = [(across(step), up(value)) for step, value in points]
    drawn.append(polyline(line, stroke=MINE, stroke_width=2))
    told = f"the agent {points[-1][1]:.3f}"
    drawn.append(_text(told, RIGHT + 6, places["the agent"] + 4, MINE))
    return element(
        "svg",
        tooltip(title),
        *drawn,
        xmlns="http://www.w3.org/2000/svg",
        viewBox=f"0 0 {WIDTH:g} {HEIGHT:g}",
        font_family="sans-serif",
        font_size=11,
    )


def _text(text: str, x: float, y: float, colour: str, **attributes: object) -> str:
    return label(text, x, y, fill=colour, **attributes)


def _apart(wanted: Mapping[str, float]) -> dict[str, float]:
    """Heights for the labels, moved down until none covers another."""
    places: dict[str, float] = {}
    last = -APART
    for name in sorted(wanted, key=lambda name: wanted[name]):
        last = max(wanted[name], last + APART)
        places[name] = last
    return places
