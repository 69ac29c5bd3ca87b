"""A run as it goes, on a terminal: how fast, on which plan, beside whom, and what was decided.

Must not know where any of it comes from.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from rich.console import Console, ConsoleOptions, RenderableType, RenderResult
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from gearshift.plan.decision import Decision

BARS = "▁▂▃▄▅▆▇█"
NARROW, TALL = 100, 20


@dataclass(frozen=True, slots=True, kw_only=True)
class Load:
    """A core, or an engine: what of its time is spent, and what of that is ours."""

    name: str
    busy: float | None
    others: float | None = None
    run_delay: float | None = None
    share: float | None = None
    """Of the work of the regions that are divided."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Layer:
    """A recurrent layer: how it goes through a sequence, and what a step takes."""

    name: str
    setting: str
    step_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Moment:
    model: str
    plan: str
    trial: str | None
    building: str | None
    """The plan that is made ready just now."""
    situation: str
    now_s: float
    start_s: float
    reference: str
    """What the model as it was is called,"""
    reference_s: float
    """and what a call of it takes."""
    lately_s: Sequence[float]
    """Medians of the last stretches, the newest last."""
    engines: Sequence[Load]
    """Those of the plan in force."""
    cores: Sequence[Load]
    layers: Sequence[Layer]
    """Recurrent ones, if the plan in force says how they go."""
    decisions: Sequence[Decision]
    over: float
    """The share of the run that is over."""
    left_s: float


@dataclass(frozen=True, slots=True)
class Screen:
    """Fits whatever terminal it is drawn on: decisions that do not fit are left out, oldest
    first."""

    moment: Moment

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        moment, width = self.moment, options.max_width
        height = options.height or console.height
        head: list[RenderableType] = [_title(moment), _numbers(moment), _spark(moment, width)]
        head += [Text(""), _loads(moment, max(2, height // 4))]
        if moment.layers and height >= TALL:
            head += [Text(""), _layers(moment.layers, max(2, height // 4))]
        foot = [] if moment.building is None else [_building(moment.building, width)]
        foot.append(_progress(moment, width))
        parts = (*head, *foot)
        used = sum(len(console.render_lines(part, options)) for part in parts) + 2
        yield from head
        yield Text("")
        yield from _decisions(moment.decisions, max(1, height - used - 1), width)
        yield from foot


def _title(moment: Moment) -> Text:
    """As much of it as fits on a line."""
    text = Text(no_wrap=True, overflow="ellipsis")
    text.append_text(Text.assemble((moment.model, "bold"), "  on ", (moment.plan, "bold cyan")))
    if moment.trial is not None:
        text.append(f", in turns with {moment.trial}", "cyan")
    text.append(f"   {moment.situation}", "dim")
    return text


def _numbers(moment: Moment) -> Text:
    then = (moment.reference, moment.reference_s)
    cells = [("now", moment.now_s), ("at start", moment.start_s), then]
    told = [f"{name} {_ms(seconds)}" for name, seconds in cells]
    if moment.now_s > 0:
        told.append(f"{moment.reference_s / moment.now_s:.2f}x {moment.reference}")
    first, *others = told
    text = Text.assemble((first, "bold"), *(f"   {other}" for other in others))
    text.no_wrap, text.overflow = True, "ellipsis"
    return text


def _ms(seconds: float) -> str:
    return f"{seconds * 1e3:.2f} ms"


def _spark(moment: Moment, width: int) -> Text:
    values = list(moment.lately_s)[-max(1, width - 2) :]
    highest = max(values, default=0.0) or 1.0
    bars = "".join(_bar(value / highest) for value in values)
    return Text(bars, "green", no_wrap=True, overflow="crop")


def _loads(moment: Moment, rows: int) -> Table:
    """In so many rows: cores that do not fit are bars in one of them, engines are counted."""
    few = len(moment.engines) + len(moment.cores) <= rows
    engines = moment.engines if few else moment.engines[: rows - 1]
    table = Table(box=None, padding=(0, 3, 0, 0), pad_edge=False)
    table.add_column("engine", no_wrap=True)
    divided = any(load.share is not None for load in engines)
    columns = ("busy", "others", "run delay", *(("share",) if divided else ()))
    for name in columns:
        table.add_column(name, justify="right", no_wrap=True)
    for load in (*engines, *(moment.cores if few else ())):
        numbers = (load.busy, load.others, load.run_delay, load.share)
        table.add_row(load.name, *map(_share, numbers[: len(columns)]))
    if not few:
        left_out = len(moment.engines) - len(engines)
        more = [f"{left_out} more engines"] if left_out else []
        bars = "".join(_bar(core.busy or 0.0) for core in moment.cores)
        table.add_row(", ".join([*more, f"{len(moment.cores)} cores {bars}"]))
    return table


def _layers(layers: Sequence[Layer], rows: int) -> Table:
    """In so many rows at most."""
    table = Table(box=None, padding=(0, 3, 0, 0), pad_edge=False)
    table.add_column("layer", no_wrap=True)
    table.add_column("steps", no_wrap=True)
    table.add_column("a step", justify="right", no_wrap=True)
    fit = len(layers) <= rows
    for layer in layers if fit else layers[: rows - 1]:
        table.add_row(layer.name, layer.setting, f"{layer.step_s * 1e6:.0f} us")
    if not fit:
        table.add_row(f"{len(layers) - rows + 1} more layers")
    return table


def _bar(share: float) -> str:
    return BARS[min(len(BARS) - 1, int(len(BARS) * share))]


def _share(value: float | None) -> str:
    return "-" if value is None else f"{value:.0%}"


def _decisions(decisions: Sequence[Decision], rows: int, width: int) -> list[Text]:
    """The newest last, as a log goes; a plan put in force has its reason below, others only where
    there is room."""
    lines: list[Text] = []
    for decision in reversed(decisions):
        entry = _decision(decision, told=decision.serves or width >= NARROW)
        if lines and len(lines) + len(entry) > rows:
            break
        lines = [*entry[:rows], *lines]
    return lines or [Text("nothing decided yet", "dim")]


def _decision(decision: Decision, *, told: bool) -> list[Text]:
    served = decision.serves
    first = Text(no_wrap=True, overflow="ellipsis")
    first.append(f"{decision.at_s:7.1f} s  ", "dim")
    first.append(f"{decision.summary or decision.plan}  ", "bold green" if served else "")
    first.append(decision.outcome, "" if served else "dim")
    if not told:
        return [first]
    return [first, Text(f"           {decision.reason}", "dim", no_wrap=True, overflow="ellipsis")]


def _building(plan: str, width: int) -> Table:
    text = Text(f"building {plan}", "yellow", no_wrap=True, overflow="ellipsis")
    text.truncate(width // 2)
    table = Table.grid(padding=(0, 1))
    table.add_row(ProgressBar(pulse=True, width=max(10, width - len(text.plain) - 2)), text)
    return table


def _progress(moment: Moment, width: int) -> Table:
    table = Table.grid(padding=(0, 1))
    bar = ProgressBar(total=1.0, completed=moment.over, width=max(10, width - 20))
    table.add_row(bar, Text(f"{moment.left_s:.0f} s left", "dim"))
    return table
