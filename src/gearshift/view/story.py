"""What happened in a run, gathered in one place: pages and traces are made of this.

Plain data. Times are seconds since the runtime was made. Must not know how it is drawn.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol, TypeVar

from gearshift.plan.decision import Decision

END = 1 / 3
"""The last part of a run, when what is to be found is found, mostly."""


class Timed(Protocol):
    @property
    def at_s(self) -> float: ...


T = TypeVar("T", bound=Timed)


def towards_end(calls: Sequence[T]) -> list[T]:
    """By time, so that it is the same part of the run for whoever was called in turns."""
    if not calls:
        return []
    begin_s, end_s = calls[0].at_s, calls[-1].at_s
    return [call for call in calls if call.at_s >= end_s - END * (end_s - begin_s)]


@dataclass(frozen=True, slots=True, kw_only=True)
class Call:
    """One call, or the mean of those between two looks."""

    at_s: float
    call_s: float
    plan: str
    """In a few words, such as `onnxruntime x2`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Span:
    """A region that ran on an engine in one call."""

    region: str
    engine: str
    backend: str
    rewrite: str
    begin_s: float
    end_s: float
    share: float = 1.0
    """Of the region's work."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Box:
    """A region of the plan in force."""

    name: str
    title: str
    """What is in it, in a few words."""
    num_ops: int
    engine: str
    backend: str
    rewrite: str
    feeds: tuple[str, ...]
    """The regions that read what it makes."""
    part: int = 0
    """Of a model captured in parts, which: those of a later one run later."""
    mean_s: float | None = None
    """Of its part of a call, lately."""
    moved_bytes: float | None = None
    """What it reads and writes in a call, counted from the graph; None where that is not known,"""
    transfer_bytes: float | None = None
    """and of that, what comes from other regions or goes to them."""
    split: str = ""
    """How it is divided, if it is,"""
    shares: Mapping[str, tuple[float, float]] = field(default_factory=dict)
    """and over which engines: the share of each, and how long it was at work in a call, lately."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Strip:
    """A region in the order of ops: from which to which, and how it is compiled."""

    first: int
    last: int
    backend: str
    about: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Cut:
    """A stretch of time in which the model fell into these regions."""

    begin_s: float
    end_s: float
    strips: tuple[Strip, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Stride:
    """A stretch of time in which a recurrent layer went by one setting."""

    layer: str
    setting: str
    begin_s: float
    end_s: float
    step_s: float
    """What a step took."""
    switched: bool = False
    """Whether it began in the middle of a sequence."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Crowd:
    """A stretch of time with so many neighbours."""

    begin_s: float
    end_s: float
    neighbours: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Reading:
    """What was last read off a counter."""

    name: str
    text: str
    source: str
    """Measured, modelled or unavailable."""
    origin: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Series:
    """One counter over time."""

    name: str
    points: tuple[tuple[float, float], ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Cost:
    """Where time went beside the regions, and what it came to."""

    name: str
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Story:
    model: str
    facts: Mapping[str, str]
    """Machine, versions, when, seeds: what a reader needs to tell this run from another."""
    calls: Sequence[Call] = ()
    end_s: float | None = None
    """A call towards the end, the median."""
    reference: str = "eager"
    """What the model as it was is called."""
    reference_s: float | None = None
    """A call of it, in the same minutes; None if it was not run."""
    reference_calls: Sequence[Call] = ()
    """Those calls, if they were kept."""
    reference_end_s: float | None = None
    """Likewise, towards the end."""
    crowds: Sequence[Crowd] = ()
    cuts: Sequence[Cut] = ()
    strides: Sequence[Stride] = ()
    """Of recurrent layers, lately."""
    decisions: Sequence[Decision] = ()
    """The last ones."""
    num_decisions: int = 0
    num_swaps: int = 0
    """Of all, also those not kept."""
    boxes: Sequence[Box] = ()
    spans: Sequence[Sequence[Span]] = ()
    """Of the last calls, each with its regions."""
    call_s: float | None = None
    """The mean of the last calls on the plan in force,"""
    between_s: float = 0.0
    """and what of it was spent in no region."""
    one_call: Sequence[Span] = ()
    """Of the plan in force: the middle one of the last calls by length."""
    costs: Sequence[Cost] = ()
    readings: Sequence[Reading] = ()
    counters: Sequence[Series] = ()
    notes: Sequence[str] = ()
