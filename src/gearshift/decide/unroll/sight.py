"""The recurrent layers of a running model as those see them who choose their settings.

Must not know who chooses.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace

from gearshift.decide.unroll.constraints import Discipline
from gearshift.decide.unroll.view import (
    RAGGED,
    STREAMING,
    UNIFORM,
    UNKNOWN,
    LayerView,
    UnrollView,
)
from gearshift.ir.measurement import Metric, Source
from gearshift.ir.recurrent import Stack
from gearshift.ir.snapshot import LayerSeen, Snapshot
from gearshift.ir.topology import members
from gearshift.plan.footprint import Footprint, layer_groups
from gearshift.plan.plan import Plan, Region
from gearshift.plan.unroll import AT_ONCE, Steps, Unroll

FEW_STEPS = 8
"""A call of no more is a piece of a stream."""
RUN_DELAY, HITS = "process.run_delay_share", "cache.l2_hit_share"


def with_steps(plan: Plan, region: Region, layer: int, steps: Steps) -> Plan:
    """The same plan, but for one layer."""
    assert region.unroll is not None, "only what is unrolled has layers to set"
    layers = region.unroll.layers
    new = Unroll(layers=(*layers[:layer], steps, *layers[layer + 1 :]))
    changed = replace(region, unroll=new)
    return Plan(regions=tuple(changed if r == region else r for r in plan.regions))


def busiest(plan: Plan, stacks: Mapping[str, Stack], seen: tuple[LayerSeen, ...]) -> Region | None:
    """Of the regions that are unrolled, the one at work longest."""
    busy_s = {region.name: 0.0 for region in plan.regions if region.unroll is not None}
    for layer in seen:
        if layer.region in busy_s:
            busy_s[layer.region] += layer.busy_s
    name = max(busy_s, key=lambda region: busy_s[region], default=None)
    return None if name is None or name not in stacks else plan.region(name)


def is_plainest(plan: Plan, name: str) -> bool:
    """Whether it takes this region all at once on one core: what others are compared with."""
    region = next((region for region in plan.regions if region.name == name), None)
    if region is None or region.unroll is None:
        return False
    return set(region.unroll.layers) == {AT_ONCE} and region.threads == 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Sight:
    """One region of the plan in force."""

    snapshot: Snapshot
    region: Region
    stack: Stack
    num_cores: int
    reference_s: float
    """What a call takes all at once on one undisturbed core."""

    def view(self, discipline: Discipline) -> UnrollView | None:
        """None if not all layers were seen, or no call was timed."""
        seen = {s.layer: s for s in self.snapshot.layers if s.region == self.region.name}
        seconds = [
            second
            for sample in self.snapshot.samples
            if sample.plan == self.snapshot.plan
            for second in sample.seconds
        ]
        if len(seen) < self.stack.num_layers or not seconds:
            return None
        first = seen[0]
        took_s = sum(seconds) / len(seconds)
        all_rows = first.num_walks * first.most_rows * first.most_steps
        return UnrollView(
            stack=self.stack,
            num_rows=first.most_rows,
            num_steps=first.most_steps,
            filled_share=min(1.0, first.row_steps / all_rows) if all_rows else 1.0,
            inputs=self._inputs(first),
            num_engines=self.num_engines,
            num_threads=self.num_threads,
            layers=tuple(self._layer(seen, layer, discipline, sum(seconds)) for layer in seen),
            reference_s=self.reference_s,
            took_s=Metric(value=took_s, source=Source.MEASURED),
            dwell_calls=discipline.constraints.dwell_calls,
            switches_left=discipline.switches_left,
        )

    @property
    def num_engines(self) -> int:
        """Over which layers or directions are spread: rows that are shared out are not."""
        return 1 if self.region.split is not None else len(members(self.region.engine))

    @property
    def num_threads(self) -> int:
        """Of each engine."""
        together = len(members(self.region.engine)) > 1
        return 1 if together else self.region.threads or self.num_cores

    def _inputs(self, first: LayerSeen) -> str:
        if self.stack.ragged:
            return RAGGED
        return STREAMING if first.most_steps <= FEW_STEPS else UNIFORM

    def _layer(
        self, seen: Mapping[int, LayerSeen], layer: int, discipline: Discipline, total_s: float
    ) -> LayerView:
        assert self.region.unroll is not None, "its layers were seen"
        mine, steps = seen[layer], self.region.unroll.layers[layer]
        groups = layer_groups(self.stack, self.num_engines)
        engine = next(number for number, group in enumerate(groups) if layer in group)
        busy_s = sum(seen[other].busy_s for other in groups[engine])
        needs = Footprint(
            stack=self.stack,
            num_rows=mine.most_rows,
            num_steps=mine.most_steps,
            num_engines=self.num_engines,
        )
        held_bytes = needs.made_bytes / self.stack.num_layers + needs.chunk_bytes(steps)
        return LayerView(
            steps=steps,
            calls_kept=discipline.calls_kept[layer],
            engine=engine,
            step_s=Metric(value=mine.busy_s / mine.num_steps, source=Source.MEASURED),
            held_bytes=Metric(value=held_bytes, source=Source.MODELLED),
            busy_share=Metric(value=min(1.0, busy_s / total_s), source=Source.MEASURED),
            run_delay_share=self._run_delay(engine),
            hit_share=self.snapshot.readings.get(HITS, UNKNOWN),
        )

    def _run_delay(self, engine: int) -> Metric:
        """Of its own thread, if it has one, else of all our threads."""
        name = members(self.region.engine)[engine]
        readings = self.snapshot.readings
        own = readings.get(f"thread.{name}.run_delay_share")
        return own or readings.get(RUN_DELAY, UNKNOWN)
