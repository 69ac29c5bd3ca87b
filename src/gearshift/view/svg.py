"""Pieces of a drawing: elements as text, scales, ticks that are round numbers.

Must not know what is drawn.
"""

import math
from collections.abc import Callable, Sequence
from html import escape

Scale = Callable[[float], float]


def element(name: str, *children: str, **attributes: object) -> str:
    """`class_` is class, `stroke_width` is stroke-width; numbers are rounded to what is seen."""
    told = "".join(
        f' {key.rstrip("_").replace("_", "-")}="{escape(_text(value))}"'
        for key, value in attributes.items()
        if value is not None
    )
    return f"<{name}{told}>{''.join(children)}</{name}>" if children else f"<{name}{told}/>"


def label(text: str, x: float, y: float, **attributes: object) -> str:
    return element("text", escape(text), x=x, y=y, **attributes)


def tooltip(text: str) -> str:
    return element("title", escape(text))


def picture(width: float, height: float, about: str, *children: str) -> str:
    """As wide as there is room, never wider than drawn."""
    return element(
        "svg",
        element("title", escape(about)),
        *children,
        viewBox=f"0 0 {width:g} {height:g}",
        role="img",
        style=f"max-width:{width:g}px",
    )


def linear(low: float, high: float, start: float, end: float) -> Scale:
    """Values beyond the ends are drawn at the ends."""
    wide = (high - low) or 1.0
    return lambda value: start + (end - start) * min(1.0, max(0.0, (value - low) / wide))


def ticks(low: float, high: float, about: int = 6) -> list[float]:
    """Round numbers between, about so many."""
    if not high > low:
        return [low]
    raw = (high - low) / max(1, about)
    power = 10.0 ** math.floor(math.log10(raw))
    step = next(m * power for m in (1, 2, 5, 10) if m * power >= raw)
    first = math.ceil(low / step - 1e-9)
    last = math.floor(high / step + 1e-9)
    return [index * step for index in range(first, last + 1)]


def polyline(points: Sequence[tuple[float, float]], **attributes: object) -> str:
    text = " ".join(f"{_text(float(x))},{_text(float(y))}" for x, y in points)
    return element("polyline", points=text, fill="none", **attributes)


def _text(value: object) -> str:
    return f"{value:.1f}".removesuffix(".0") if isinstance(value, float) else str(value)
