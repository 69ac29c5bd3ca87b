"""What the command line shows while it works: a live view on a terminal, plain lines elsewhere.

Must not know what the results are; those go to stdout.
"""

import statistics
import sys
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from time import perf_counter

from rich.console import Console
from rich.live import Live
from rich.markup import escape
from rich.progress import Progress
from rich.text import Text

from gearshift.live import Run
from gearshift.moment import moment_of
from gearshift.runtime import Runtime
from gearshift.tell import shares_now
from gearshift.view.terminal import Screen

WIDE, MAX_LATELY = 170, 500
MOVED = 0.1
"""A share that changed by so much is told anew."""
Seen = Callable[[Run, float], None]


class Stderr(Console):
    """If nobody reads it any more, the work goes on in silence."""

    def __init__(self) -> None:
        super().__init__(stderr=True)

    @property
    def lively(self) -> bool:
        """Whether what was drawn can be drawn over."""
        return self.file.isatty() and not self.is_dumb_terminal

    def on_broken_pipe(self) -> None:
        self.quiet = True


progress = Stderr()


def say(text: str) -> None:
    """What is being done now."""
    progress.print(f"{text} ...", style="dim", markup=False, highlight=False, soft_wrap=True)


def note(text: str) -> None:
    progress.print(text, markup=False, highlight=False, soft_wrap=True)


def wide() -> Console:
    """Wide tables are not folded where nobody looks at a screen."""
    return Console() if sys.stdout.isatty() else Console(width=WIDE)


@contextmanager
def working(text: str) -> Iterator[None]:
    """Something that moves while a terminal's user waits, a plain line elsewhere."""
    if not progress.lively:
        say(text)
        yield
        return
    with progress.status(f"{escape(text)} ..."):
        yield


@contextmanager
def counting(total: int) -> Iterator[Callable[[str], None]]:
    """A bar on a terminal, plain lines elsewhere; to be told what begins."""
    if not progress.lively:
        yield say
        return
    with Progress(console=progress, transient=True) as bar:
        task = bar.add_task("", total=total)
        begun = 0

        def step(text: str) -> None:
            nonlocal begun
            bar.update(task, description=escape(text), completed=begun)
            begun += 1

        yield step


@contextmanager
def showing(runtime: Runtime, model: str, seconds: float, *, drawn: bool) -> Iterator[Seen]:
    """A live view on a terminal; else every decision as it is made, a line each."""
    if not (drawn and sys.stdout.isatty() and progress.lively):
        yield _telling(runtime)
        return
    lately_s: deque[float] = deque(maxlen=MAX_LATELY)
    shown_s = perf_counter()
    first = Text(f"{model}: the first calls ...", "dim")
    with Live(first, console=progress, transient=True, auto_refresh=False) as live:
        live.refresh()

        def seen(run: Run, over: float) -> None:
            nonlocal shown_s
            now_s = perf_counter()
            lately_s.append(statistics.median(run.slice_s))
            moment = moment_of(
                runtime,
                model,
                run=run,
                lately_s=list(lately_s),
                calling=sum(run.slice_s) / (now_s - shown_s),
                over=over,
                left_s=seconds * (1 - over),
            )
            shown_s = now_s
            live.update(Screen(moment), refresh=True)

        yield seen


def _telling(runtime: Runtime) -> Seen:
    told = 0
    shares: Mapping[str, float] = {}

    def seen(run: Run, over: float) -> None:
        nonlocal told, shares
        for decision in runtime.decisions:
            if decision.number > told:
                note(str(decision))
                told = decision.number
        now = shares_now(runtime)  # asking keeps the calls for a trace, too
        if any(abs(share - shares.get(name, 0.0)) > MOVED for name, share in now.items()):
            shares = now
            note("shares: " + ", ".join(f"{name} {share:.0%}" for name, share in now.items()))

    return seen
