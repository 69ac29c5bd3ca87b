"""What a runtime does just now, to be drawn while it runs.

A recipe: asks everybody who knows something. Must not know how it is drawn.
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from gearshift.ir.topology import members
from gearshift.loop import Loop
from gearshift.observe.sampler import RUN_DELAY
from gearshift.tell import NOW_CALLS, median_s, recent_calls, shares_now, spans_of
from gearshift.tell_regions import strides_of
from gearshift.view.terminal import Layer, Load, Moment

if TYPE_CHECKING:
    from gearshift.live import Run
    from gearshift.runtime import Runtime

NOW_THEIRS = 5
"""There are fewer calls of the model as it was."""


def moment_of(
    runtime: "Runtime",
    model: str,
    *,
    run: "Run",
    lately_s: Sequence[float],
    calling: float,
    over: float,
    left_s: float,
) -> Moment:
    """`lately_s` are medians of stretches of the run, `calling` is the share of the time since the
    last moment that was spent in calls of ours."""
    loop, trial = runtime._loop, runtime.trial
    building = None if loop is None else loop.changeover.building
    situation = None if loop is None or loop.seen is None else loop.seen.situation
    return Moment(
        model=model,
        plan=runtime.plan.summary,
        trial=None if trial is None else trial.summary,
        building=None if building is None else building.summary,
        situation="" if situation is None else str(situation),
        now_s=median_s(run.ours.calls[-NOW_CALLS:]),
        start_s=median_s(run.ours.calls[:NOW_CALLS]),
        reference=runtime.program.reference_name,
        reference_s=median_s(run.theirs.calls[-NOW_THEIRS:]),
        lately_s=lately_s,
        engines=_engines(runtime, calling),
        cores=[] if loop is None else _cores(loop),
        layers=_layers(runtime),
        decisions=runtime.decisions,
        over=over,
        left_s=left_s,
    )


def _engines(runtime: "Runtime", calling: float) -> list[Load]:
    """How much of its time each engine of the plan is at work: its part of the last calls, and
    how much of the time is spent in calls."""
    loop = runtime._loop
    shares = shares_now(runtime)
    names = (name for region in runtime.plan.regions for name in members(region.engine))
    worked = dict.fromkeys(names, 0.0)
    whole_s = 0.0
    for plan, timing in recent_calls(runtime)[-NOW_CALLS:]:
        whole_s += timing.call_s
        for span in spans_of(plan, timing, 0.0, runtime._serving.eager.executor.plan):
            if span.engine in worked:
                worked[span.engine] += span.end_s - span.begin_s
    return [
        Load(
            name=name,
            busy=min(1.0, calling * work_s / whole_s) if whole_s else None,
            run_delay=None if loop is None else _run_delay(loop, name),
            share=shares.get(name),
        )
        for name, work_s in worked.items()
    ]


def _layers(runtime: "Runtime") -> list[Layer]:
    """As each went through its last steps, if the plan in force says how."""
    if all(region.unroll is None for region in runtime.plan.regions):
        return []
    last = {stride.layer: stride for stride in strides_of(runtime, 0.0)}
    return [
        Layer(name=name, setting=stride.setting, step_s=stride.step_s)
        for name, stride in last.items()
    ]


def _run_delay(loop: Loop, engine: str) -> float | None:
    """Of its own thread, if it has one, else of all our threads."""
    own = _last(loop, f"thread.{engine}.run_delay_share")
    return _last(loop, RUN_DELAY) if own is None else own


def _cores(loop: Loop) -> list[Load]:
    readings = {} if loop.seen is None else loop.seen.readings
    names = [name for name in readings if name.startswith("core.") and name.endswith(".busy_share")]
    return [
        Load(
            name=f"core {name.split('.')[1]}",
            busy=_last(loop, name),
            others=_last(loop, name.replace("busy_share", "others_share")),
        )
        for name in names
    ]


def _last(loop: Loop, name: str) -> float | None:
    metric = None if loop.seen is None else loop.seen.readings.get(name)
    return None if metric is None else metric.value
