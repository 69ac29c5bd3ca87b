"""A story as one page.

Must not know files or where the story comes from.
"""

from collections.abc import Sequence
from html import escape

from gearshift.plan.decision import Decision
from gearshift.view.cuts import cuts_chart
from gearshift.view.html import document, facts_table, header, section
from gearshift.view.latency import latency_chart
from gearshift.view.layers import layers_chart
from gearshift.view.palette import colours
from gearshift.view.regions import gantt_chart, key, legend, listed, regions_chart
from gearshift.view.story import Box, Reading, Series, Story
from gearshift.view.svg import element, linear, picture, polyline

MOST_ROWS = 20
SPARK = (220.0, 40.0)


def page(story: Story) -> str:
    return document(
        f"Gearshift: {story.model}",
        header(story.model, _headlines(story)),
        section("Latency", _latency(story)),
        section("Plan in force", _plan(story)),
        section("Regions over time", _cuts(story)),
        section("Recurrent layers over time", _layers(story)),
        section("One call", _one_call(story)),
        section("Where the time went", _where(story)),
        section("What was tried", _decisions(story)),
        section("Telemetry", _telemetry(story)),
        section("Machine and versions", facts_table(story.facts)),
    )


def _headlines(story: Story) -> list[tuple[str, str]]:
    found = []
    end_s, name = story.end_s, story.reference
    then_s = story.reference_end_s or story.reference_s
    if end_s is not None:
        found.append(("a call towards the end, median", f"{end_s * 1e3:.2f} ms"))
    if then_s is not None:
        found.append((f"{name}, the same", f"{then_s * 1e3:.2f} ms"))
    if end_s and then_s:
        found.append((f"as fast as {name}", f"{then_s / end_s:.2f}x"))
    return [
        *found,
        ("swaps", str(story.num_swaps)),
        ("decisions", str(story.num_decisions)),
    ]


def _latency(story: Story) -> str:
    if not story.calls:
        return "<p>No calls yet.</p>"
    plans = colours(call.plan for call in story.calls)
    keys = "".join(key(plan, f"fill {css}") for plan, css in plans.items())
    return (
        f"<p class=legend>{keys}</p><div class=wide>{latency_chart(story)}</div>"
        "<p class=muted>Dots are medians of calls close together, lines their range; shaded:"
        " neighbours; numbered: swaps, as listed below. What is beyond the axis is drawn at its"
        " top.</p>"
    )


def _plan(story: Story) -> str:
    notes = "".join(f"<p class=muted>{escape(note)}</p>" for note in story.notes)
    if not story.boxes:
        return notes
    told = "Filled by backend, framed by engine."
    return (
        f"{legend(story.boxes)}<div class=wide>{regions_chart(story.boxes)}</div>"
        f"<p class=muted>{told}</p>{listed(story.boxes)}{_splits(story.boxes)}{notes}"
    )


def _cuts(story: Story) -> str:
    """Nothing if the model was one region all the time."""
    drawn = cuts_chart(story.cuts)
    if not drawn:
        return ""
    names = colours(strip.backend for cut in story.cuts for strip in cut.strips)
    keys = "".join(key(name, f"fill {css}") for name, css in names.items())
    told = "Ops from top to bottom in the order they run; a line lies between two regions."
    return f"<p class=legend>{keys}</p><div class=wide>{drawn}</div><p class=muted>{told}</p>"


def _layers(story: Story) -> str:
    """Nothing if the plan unrolled none."""
    drawn = layers_chart(story.strides)
    names = colours(stride.setting for stride in story.strides)
    keys = "".join(key(name, f"fill {css}") for name, css in names.items())
    told = "How many steps each layer takes at a time; a line where that changed within a sequence."
    if not drawn:
        return ""
    return f"<p class=legend>{keys}</p><div class=wide>{drawn}</div><p class=muted>{told}</p>"


def _splits(boxes: Sequence[Box]) -> str:
    """Who of a team does how much of each region that is divided, and for how long."""
    rows = "".join(
        f"<tr><td>{escape(box.title)}</td><td>{escape(box.split)}</td><td>{escape(engine)}</td>"
        f"<td class=number>{share:.0%}</td><td class=number>{busy_s * 1e3:.3f} ms</td>"
        f"<td class=barcell>{_bar(share)}</td></tr>"
        for box in boxes
        for engine, (share, busy_s) in sorted(box.shares.items())
    )
    head = (
        "<tr><th>region</th><th>split</th><th>engine</th><th>share</th><th>busy in a call</th>"
        "<th></th></tr>"
    )
    return f"<div class=wide><table>{head}{rows}</table></div>" if rows else ""


def _one_call(story: Story) -> str:
    drawn = gantt_chart(story.one_call, story.boxes)
    return f"<div class=wide>{drawn}</div>" if drawn else ""


def _where(story: Story) -> str:
    timed = [(box, box.mean_s) for box in story.boxes if box.mean_s is not None]
    timed.sort(key=lambda entry: -entry[1])
    rows = _bars(timed, story)
    costs = "".join(
        f"<tr><td>{escape(cost.name)}</td><td>{escape(cost.text)}</td></tr>" for cost in story.costs
    )
    table = f"<table class=costs>{costs}</table>" if costs else ""
    return f"{rows}{table}"


def _bars(timed: Sequence[tuple[Box, float]], story: Story) -> str:
    """Shares of a call; regions that run at the same time may come to more than all of it."""
    whole_s = story.call_s or sum(mean_s for _, mean_s in timed)
    if not whole_s:
        return ""
    rest_s = sum(mean_s for _, mean_s in timed[MOST_ROWS:])
    entries = [
        (box.title, box.rewrite, mean_s, *_traffic(box, mean_s))
        for box, mean_s in timed[:MOST_ROWS]
    ]
    if rest_s:
        entries.append((f"{len(timed) - MOST_ROWS} more regions", "", rest_s, "", ""))
    if story.between_s:
        entries.append(("in no region", "", story.between_s, "", ""))
    rows = "".join(
        f"<tr><td>{escape(title)}</td><td>{escape(rewrite)}</td>"
        f"<td class=number>{mean_s * 1e3:.3f} ms</td><td class=number>{rate}</td>"
        f"<td class=number>{handed}</td><td class=number>{mean_s / whole_s:.0%}</td>"
        f"<td class=barcell>{_bar(mean_s / whole_s)}</td></tr>"
        for title, rewrite, mean_s, rate, handed in entries
    )
    head = (
        "<tr><th>region</th><th>rewrite</th><th>a call</th><th>moves</th><th>in and out</th>"
        "<th></th><th></th></tr>"
    )
    return f"<div class=wide><table>{head}{rows}</table></div>"


def _traffic(box: Box, mean_s: float) -> tuple[str, str]:
    """Bytes a second, and those that cross its boundary: counted from the graph."""
    if box.moved_bytes is None or box.transfer_bytes is None or not mean_s:
        return "", ""
    return f"{box.moved_bytes / mean_s / 1e9:.1f} GB/s", f"{box.transfer_bytes / 1e6:.2f} MB"


def _bar(share: float) -> str:
    return f'<div class=share style="width:{100 * min(1.0, share):.1f}%"></div>'


def _decisions(story: Story) -> str:
    decisions = story.decisions
    if not decisions:
        return "<p>Nothing was decided: no policy at work, or no time yet.</p>"
    head = (
        "<tr><th></th><th>at</th><th>plan</th><th>why</th><th>what came of it</th>"
        "<th>foreseen</th><th>measured</th></tr>"
    )
    rows = "".join(map(_decision, decisions))
    missing = story.num_decisions - len(decisions)
    told = f"<p class=muted>{missing} earlier ones are not kept.</p>" if missing > 0 else ""
    return f"<div class=wide><table class=decisions>{head}{rows}</table></div>{told}"


def _decision(decision: Decision) -> str:
    gains = (decision.predicted_gain, decision.measured_gain)
    predicted, measured = ("" if gain is None else f"{gain:.2f}x" for gain in gains)
    css = "kept" if decision.serves else "dropped"
    return (
        f"<tr class={css}><td class=number>{decision.number}</td>"
        f"<td class=number>{decision.at_s:.1f} s</td>"
        f"<td>{escape(decision.summary or decision.plan)}</td><td>{escape(decision.reason)}</td>"
        f"<td>{escape(decision.outcome)}</td><td class=number>{predicted}</td>"
        f"<td class=number>{measured}</td></tr>"
    )


def _telemetry(story: Story) -> str:
    sparks = "".join(map(_spark, story.counters))
    head = "<tr><th>counter</th><th>last value</th><th></th><th>from</th></tr>"
    rows = "".join(map(_reading, story.readings))
    table = f"<div class=wide><table>{head}{rows}</table></div>" if rows else ""
    if not sparks and not table:
        return "<p>Nothing was read off the machine: no policy was at work.</p>"
    return f"<div class=sparks>{sparks}</div>{table}"


def _reading(reading: Reading) -> str:
    return (
        f"<tr><td>{escape(reading.name)}</td><td class=number>{escape(reading.text)}</td>"
        f'<td><span class="tag {escape(reading.source)}">{escape(reading.source)}</span></td>'
        f"<td class=muted>{escape(reading.origin)}</td></tr>"
    )


def _spark(series: Series) -> str:
    if len(series.points) < 2:
        return ""
    width, height = SPARK
    times, values = zip(*series.points, strict=True)
    across = linear(min(times), max(times), 1, width - 1)
    up = linear(min(0.0, min(values)), max(values) or 1.0, height - 2, 2)
    line = polyline([(across(t), up(v)) for t, v in series.points], class_="spark")
    text = f"{escape(series.name)}: {values[-1]:.3g}, at most {max(values):.3g}"
    return element(
        "figure", picture(width, height, series.name, line), f"<figcaption>{text}</figcaption>"
    )
