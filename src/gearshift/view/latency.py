"""The time of calls over time: each plan in its colour, neighbours shaded, swaps marked.

Must not know where the calls come from.
"""

import statistics
from collections import defaultdict
from collections.abc import Sequence

from gearshift.plan.decision import Decision
from gearshift.view.palette import colours
from gearshift.view.story import Call, Story
from gearshift.view.svg import Scale, element, label, linear, picture, polyline, ticks, tooltip

WIDTH, HEIGHT = 960.0, 320.0
LEFT, RIGHT, TOP, BOTTOM = 52.0, 8.0, 34.0, 28.0
COLUMN, WIDE_COLUMN = 3.0, 12.0
"""Calls so close together that they share a column are one mark: its middle, and its range."""
TALLEST = 0.97
"""The axis ends where this share of the calls is below; what takes longer is drawn at the top."""
APART = 16.0


def latency_chart(story: Story) -> str:
    calls = story.calls
    if not calls:
        return ""
    end_s = max(call.at_s for call in calls)
    begin_s = min(call.at_s for call in calls)
    top_ms = _top_ms(story)
    across = linear(begin_s, end_s, LEFT, WIDTH - RIGHT)
    up = linear(0.0, top_ms, HEIGHT - BOTTOM, TOP)
    return picture(
        WIDTH,
        HEIGHT,
        "time of calls over time",
        *_crowds(story, across),
        *_axes(begin_s, end_s, top_ms, across, up),
        *_marks(calls, across, up),
        *_reference(story, across, up),
        *_swaps(story.decisions, begin_s, end_s, across),
    )


def _top_ms(story: Story) -> float:
    most_s = [story.reference_s or 0.0]
    for calls in filter(None, (story.calls, story.reference_calls)):
        ordered = sorted(call.call_s for call in calls)
        most_s.append(ordered[int(TALLEST * (len(ordered) - 1))])
    return 1e3 * 1.1 * max(most_s)


def _axes(begin_s: float, end_s: float, top_ms: float, across: Scale, up: Scale) -> list[str]:
    drawn = []
    for value in ticks(0.0, top_ms):
        drawn.append(element("line", x1=LEFT, x2=WIDTH - RIGHT, y1=up(value), y2=up(value)))
        drawn.append(label(f"{value:g}", LEFT - 6, up(value) + 4, text_anchor="end"))
    for value in ticks(begin_s, end_s, 10):
        x = across(value)
        anchor = "end" if x > WIDTH - RIGHT - APART else "middle"
        drawn.append(label(f"{value:g} s", x, HEIGHT - 8, text_anchor=anchor))
    drawn.append(label("ms", LEFT - 6, TOP - 6, text_anchor="end"))
    return [element("g", *drawn, class_="axis")]


def _crowds(story: Story, across: Scale) -> list[str]:
    drawn = []
    for crowd in story.crowds:
        if crowd.neighbours:
            left, right = across(crowd.begin_s), across(crowd.end_s)
            text = f"{crowd.neighbours} neighbour{'s' if crowd.neighbours > 1 else ''}"
            box = element(
                "rect",
                tooltip(f"{text}, {crowd.begin_s:.1f} to {crowd.end_s:.1f} s"),
                x=left,
                y=TOP,
                width=max(1.0, right - left),
                height=HEIGHT - TOP - BOTTOM,
                class_="crowd",
            )
            drawn.append(box)
            if right - left > 80:
                drawn.append(label(text, left + 5, HEIGHT - BOTTOM - 6, class_="muted"))
    return drawn


def _marks(calls: Sequence[Call], across: Scale, up: Scale) -> list[str]:
    plans = colours(call.plan for call in calls)
    columns: dict[tuple[int, str], list[Call]] = defaultdict(list)
    for call in calls:
        columns[int(across(call.at_s) / COLUMN), call.plan].append(call)
    drawn = []
    for (_, plan), group in columns.items():
        times_ms = sorted(call.call_s * 1e3 for call in group)
        x = across(statistics.fmean(call.at_s for call in group))
        if len(group) > 2:
            ends = (up(times_ms[0]), up(times_ms[-1]))
            drawn.append(
                element("line", x1=x, x2=x, y1=ends[0], y2=ends[1], class_=f"range {plans[plan]}")
            )
        middle_ms = statistics.median(times_ms)
        about = tooltip(f"{plan}: {middle_ms:.2f} ms at {group[0].at_s:.1f} s")
        drawn.append(element("circle", about, cx=x, cy=up(middle_ms), r=2, class_=plans[plan]))
    return drawn


def _reference(story: Story, across: Scale, up: Scale) -> list[str]:
    """The model as it was, call by call if that was kept."""
    if story.reference_s is None:
        return []
    text = f"{story.reference}, median"
    points = [(LEFT, up(story.reference_s * 1e3)), (WIDTH - RIGHT, up(story.reference_s * 1e3))]
    columns: dict[int, list[Call]] = defaultdict(list)
    for call in story.reference_calls:
        columns[int(across(call.at_s) / WIDE_COLUMN)].append(call)
    if len(columns) > 1:
        text = story.reference
        points = [
            (
                across(statistics.fmean(call.at_s for call in group)),
                up(1e3 * statistics.median(call.call_s for call in group)),
            )
            for _, group in sorted(columns.items())
        ]
    line = polyline(points, class_="eager")
    return [line, label(text, WIDTH - RIGHT - 4, points[-1][1] - 5, text_anchor="end")]


def _swaps(decisions: Sequence[Decision], begin_s: float, end_s: float, across: Scale) -> list[str]:
    """Numbered as in the list of decisions; numbers too close to each other move down."""
    drawn, last_x, row = [], -APART, 0
    for decision in decisions:
        if begin_s <= decision.at_s <= end_s and decision.serves:
            x = across(decision.at_s)
            row = (row + 1) % 2 if x - last_x < APART else 0
            last_x = x
            about = tooltip(f"{decision.number}: {decision.summary}: {decision.reason}")
            line = element("line", about, x1=x, x2=x, y1=TOP, y2=HEIGHT - BOTTOM, class_="swap")
            drawn += [line, label(str(decision.number), x, 14 + 12 * row, text_anchor="middle")]
    return drawn
