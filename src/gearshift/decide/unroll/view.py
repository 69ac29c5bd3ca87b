"""What is seen of a stack of recurrent layers when a setting of one of them is chosen.

Must not know who chooses, or where the numbers come from.
"""

from dataclasses import dataclass, replace

from gearshift.ir.measurement import Metric, Source
from gearshift.ir.recurrent import Stack
from gearshift.plan.footprint import Footprint
from gearshift.plan.unroll import Steps

INPUT_KINDS = UNIFORM, RAGGED, STREAMING = ("uniform", "ragged", "streaming")
UNKNOWN = Metric(value=None, source=Source.UNAVAILABLE)
Settings = tuple[Steps, ...]
"""For each layer; which kernel computes it is left open."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LayerView:
    steps: Steps
    """The setting in force,"""
    calls_kept: int
    """and for how many calls it has been."""
    engine: int = 0
    """Which of the engines computes it; the first, if all do."""
    step_s: Metric = UNKNOWN
    """What a step took in the last call, on average."""
    held_bytes: Metric = UNKNOWN
    """Its outputs, and what a chunk of it needs."""
    busy_share: Metric = UNKNOWN
    """Of the last call: how long its engine was at work;"""
    run_delay_share: Metric = UNKNOWN
    """of that, how long it waited for its core."""
    hit_share: Metric = UNKNOWN
    """Of what it reads: what is found in the cache."""


@dataclass(frozen=True, slots=True, kw_only=True)
class UnrollView:
    stack: Stack
    num_rows: int
    num_steps: int
    """The most that a call has."""
    filled_share: float
    """Of rows x steps in the last call: what is not padding."""
    inputs: str
    """One of INPUT_KINDS."""
    num_engines: int
    """1, or as many as layers or directions are spread over,"""
    num_threads: int
    """with so many each."""
    layers: tuple[LayerView, ...]
    reference_s: float
    """What the last call would have taken all at once, padded, on one undisturbed thread."""
    took_s: Metric = UNKNOWN
    """What it did take."""
    call_s: Metric = UNKNOWN
    """What a chunk costs beyond its steps."""
    memory_limit_bytes: int | None = None
    dwell_calls: int = 0
    """A layer keeps its setting for so many calls at least."""
    switches_left: int = 0
    """How often any layer may still change."""

    @property
    def settings(self) -> Settings:
        return tuple(plain(layer.steps) for layer in self.layers)

    @property
    def footprint(self) -> Footprint:
        return Footprint(
            stack=self.stack,
            num_rows=self.num_rows,
            num_steps=self.num_steps,
            num_engines=self.num_engines,
        )


def plain(steps: Steps) -> Steps:
    """By whichever kernel."""
    return replace(steps, kernel="") if steps.kernel else steps
