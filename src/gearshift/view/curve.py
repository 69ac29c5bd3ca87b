"""How an agent learned, as one picture: how near to the oracle it came, beside those that do not
learn.

Must not know what was learned.
"""

from collections.abc import Mapping, Sequence

from gearshift.view.svg import Scale, element, label, linear, polyline, ticks, tooltip

WIDTH, HEIGHT = 720.0, 340.0
LEFT, RIGHT, TOP, BOTTOM = 64.0, 530.0, 16.0, 300.0
INK, PALE, MINE = "#333333", "#b8b8b8", "#d05a2a"
OTHERS = ("#587898", "#7a9a5a", "#8a6aa8", "#b08a2a", "#3a3a3a")
APART = 13.0
AGENT, MEASURE = "the agent", "share of the oracle's speed"


def curve_picture(
    points: Sequence[tuple[int, float]],
    others: Mapping[str, float],
    *,
    kept: tuple[int, float],
    title: str,
) -> str:
    """`points` are steps and shares of the oracle; `kept`, the one whose network is the agent;
    `others`, the shares that the others reach on the same."""
    lowest = min([value for _, value in points] + list(others.values())) - 0.02
    across = linear(0, points[-1][0], LEFT, RIGHT)
    up = linear(lowest, 1.0, BOTTOM, TOP)
    ends = {AGENT: kept[1], **others}
    places = _apart({name: up(value) for name, value in ends.items()})
    line = [(across(step), up(value)) for step, value in points]
    return element(
        "svg",
        tooltip(title),
        element("rect", width=WIDTH, height=HEIGHT, fill="white"),
        *_axes(points[-1][0], lowest, across, up),
        *_levels(others, places, up),
        polyline(line, stroke=MINE, stroke_width=2),
        *_mark(kept, places[AGENT], across, up),
        xmlns="http://www.w3.org/2000/svg",
        viewBox=f"0 0 {WIDTH:g} {HEIGHT:g}",
        font_family="sans-serif",
        font_size=11,
    )


def _axes(last_step: int, lowest: float, across: Scale, up: Scale) -> list[str]:
    middle, centre = (LEFT + RIGHT) / 2, (TOP + BOTTOM) / 2
    turned = f"rotate(-90 14 {centre:g})"
    drawn = [
        _text(MEASURE, 14.0, centre, INK, text_anchor="middle", transform=turned),
        _text("steps", middle, BOTTOM + 34, INK, text_anchor="middle"),
    ]
    for value in ticks(lowest, 1.0):
        y = up(value)
        drawn.append(element("line", x1=LEFT, x2=RIGHT, y1=y, y2=y, stroke=PALE, stroke_width=0.5))
        drawn.append(_text(f"{value:.2f}", LEFT - 6, y + 4, INK, text_anchor="end"))
    for step in ticks(0, last_step):
        drawn.append(_text(f"{step:g}", across(step), BOTTOM + 16, INK, text_anchor="middle"))
    return drawn


def _levels(others: Mapping[str, float], places: Mapping[str, float], up: Scale) -> list[str]:
    """A dashed line each, named at its end."""
    drawn = []
    for index, (name, value) in enumerate(others.items()):
        colour, y = OTHERS[index % len(OTHERS)], up(value)
        dash = {"stroke": colour, "stroke_dasharray": "4 3"}
        drawn.append(element("line", x1=LEFT, x2=RIGHT, y1=y, y2=y, **dash))
        drawn.append(_text(f"{name} {value:.3f}", RIGHT + 6, places[name] + 4, colour))
    return drawn


def _mark(kept: tuple[int, float], place: float, across: Scale, up: Scale) -> list[str]:
    """A dot where the network was kept, and what it reaches."""
    step, value = kept
    x, y = across(step), up(value)
    return [
        element("circle", cx=x, cy=y, r=4, fill=MINE),
        _text("kept", x, y - 8, MINE, text_anchor="middle"),
        _text(f"{AGENT} {value:.3f}, step {step}", RIGHT + 6, place + 4, MINE),
    ]


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
