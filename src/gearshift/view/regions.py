"""The regions of a plan as boxes in the order they can run; and one call of them, as bars.

Must not know what a region is made of. Three are drawn large, three hundred small.
"""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from html import escape

from gearshift.view.palette import colours
from gearshift.view.story import Box, Span
from gearshift.view.svg import element, label, linear, picture, ticks, tooltip

WIDTH = 960.0
Places = Mapping[str, tuple[float, float]]


@dataclass(frozen=True, slots=True)
class Size:
    most: int
    """Up to so many regions,"""
    width: float
    height: float
    gap: float
    letters: int
    """and so much text fits."""


SIZES = (Size(16, 206, 58, 34, 27), Size(80, 104, 38, 18, 13), Size(10**9, 18, 18, 6, 0))


def regions_chart(boxes: Sequence[Box]) -> str:
    size = next(size for size in SIZES if len(boxes) <= size.most)
    places, height = _places(boxes, size)
    engines, backends = _classes(boxes)
    drawn = [_edge(places[box.name], places[f], size) for box in boxes for f in box.feeds]
    drawn += [_box(box, places[box.name], size, backends, engines) for box in boxes]
    return picture(WIDTH, height, f"{len(boxes)} regions", *drawn)


def _classes(boxes: Sequence[Box]) -> tuple[dict[str, str], dict[str, str]]:
    """By engine, for frames; by backend, for what is in them."""
    engines = {name: f"e{c}" for name, c in colours(box.engine for box in boxes).items()}
    return engines, colours(box.backend for box in boxes)


def listed(boxes: Sequence[Box]) -> str:
    """Where boxes are too small for text: what is in each, in the order of the drawing."""
    if len(boxes) <= SIZES[-2].most:
        return ""
    lines = [element("li", escape(_about(box))) for box in boxes]
    return element("ol", *lines, class_="many")


def legend(boxes: Sequence[Box]) -> str:
    engines, backends = _classes(boxes)
    keys = [key(name, f"fill {css}") for name, css in backends.items()]
    keys += [key(name, f"frame {css}") for name, css in engines.items()]
    return element("p", *keys, class_="legend")


def key(name: str, css: str) -> str:
    return element("span", element("i", " ", class_=css), f" {escape(name)} ", class_="key")


def _levels(boxes: Sequence[Box]) -> list[list[Box]]:
    """A region comes one level after the last of those it reads from, and after all of the parts
    before its own."""
    level = {box.name: 0 for box in boxes}
    found: dict[tuple[int, int], list[Box]] = defaultdict(list)
    for box in boxes:  # in an order in which they can run
        for name in box.feeds:
            level[name] = max(level[name], level[box.name] + 1)
        found[box.part, level[box.name]].append(box)
    return [found[place] for place in sorted(found)]


def _places(boxes: Sequence[Box], size: Size) -> tuple[dict[str, tuple[float, float]], float]:
    """Levels from left to right, in lines like text."""
    per_line = max(1, int((WIDTH + size.gap) / (size.width + size.gap)))
    places: dict[str, tuple[float, float]] = {}
    levels = _levels(boxes)
    y = 4.0
    for start in range(0, len(levels), per_line):
        line = levels[start : start + per_line]
        for column, level in enumerate(line):
            for row, box in enumerate(level):
                x = 2 + column * (size.width + size.gap)
                places[box.name] = (x, y + row * (size.height + size.gap / 2))
        deepest = max(map(len, line))
        y += deepest * (size.height + size.gap / 2) + size.gap / 2
    return places, y


def _edge(start: tuple[float, float], end: tuple[float, float], size: Size) -> str:
    x1, y1 = start[0] + size.width, start[1] + size.height / 2
    x2, y2 = end[0], end[1] + size.height / 2
    if x2 > x1:
        bend = (x2 - x1) / 2
        points = [(x1 + bend, y1), (x2 - bend, y2), (x2, y2)]
        curve = " ".join(f"{x:.1f},{y:.1f}" for x, y in points)
        path = f"M{x1:.1f},{y1:.1f} C{curve}"
    else:  # on to the next line
        middle = (start[1] + size.height + end[1]) / 2
        x1 -= size.width / 2
        x2 += size.width / 2
        path = f"M{x1:.1f},{start[1] + size.height:.1f} V{middle:.1f} H{x2:.1f} V{end[1]:.1f}"
    return element("path", d=path, class_="edge")


def _box(
    box: Box,
    place: tuple[float, float],
    size: Size,
    backends: Mapping[str, str],
    engines: Mapping[str, str],
) -> str:
    x, y = place
    drawn = [
        tooltip(_about(box)),
        element(
            "rect",
            x=x,
            y=y,
            width=size.width,
            height=size.height,
            rx=4,
            class_=f"box {backends[box.backend]} {engines[box.engine]}",
        ),
    ]
    if size.letters:
        lines = [box.title, f"{box.rewrite}{_time(box)}"]
        drawn += [
            label(_short(text, size.letters), x + 7, y + 16 + 15 * row, class_="inside")
            for row, text in enumerate(lines)
        ]
    return element("g", *drawn)


def _about(box: Box) -> str:
    return f"{box.title}: {box.num_ops} ops, {box.rewrite} on {box.engine}{_time(box)}"


def _time(box: Box) -> str:
    return "" if box.mean_s is None else f", {box.mean_s * 1e3:.3g} ms"


def _short(text: str, letters: int) -> str:
    return text if len(text) <= letters else f"{text[: letters - 1]}…"


LANE, NAMES = 30.0, 90.0


def gantt_chart(spans: Sequence[Span], boxes: Sequence[Box]) -> str:
    """One call: a lane for each engine."""
    if not spans:
        return ""
    engines = list(dict.fromkeys(span.engine for span in spans))
    backends = colours([*(box.backend for box in boxes), *(span.backend for span in spans)])
    titles = {box.name: box.title for box in boxes}
    begin_s, end_s = min(s.begin_s for s in spans), max(s.end_s for s in spans)
    across = linear(begin_s, end_s, NAMES, WIDTH - 10)
    height = 8 + LANE * len(engines) + 22
    drawn = []
    for value in ticks(0.0, (end_s - begin_s) * 1e3, 8):
        x = across(begin_s + value / 1e3)
        drawn.append(element("line", x1=x, x2=x, y1=4, y2=height - 20, class_="grid"))
        drawn.append(label(f"{value:g} ms", x, height - 6, text_anchor="middle"))
    for row, engine in enumerate(engines):
        y = 6 + row * LANE
        drawn.append(label(engine, NAMES - 8, y + 16, text_anchor="end"))
        for span in (span for span in spans if span.engine == engine):
            x1, x2 = across(span.begin_s), across(span.end_s)
            title = titles.get(span.region, span.region)
            drawn.append(_bar(span, x1, x2, y, backends[span.backend], title))
    return picture(WIDTH, height, "one call", *drawn)


def _bar(span: Span, x1: float, x2: float, y: float, css: str, title: str) -> str:
    time_ms = (span.end_s - span.begin_s) * 1e3
    about = tooltip(f"{title}: {time_ms:.3g} ms on {span.engine}, {span.rewrite}")
    bar = element(
        "rect", x=x1, y=y, width=max(0.6, x2 - x1), height=LANE - 8, rx=2, class_=f"bar {css}"
    )
    fits = int((x2 - x1 - 10) / 7)
    text = [label(_short(title, fits), x1 + 5, y + 15, class_="inside")] if fits > 3 else []
    return element("g", about, bar, *text)
