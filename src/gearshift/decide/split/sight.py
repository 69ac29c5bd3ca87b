"""A running model as those see it who choose its split: which plan is which action, its engines.

Must not know who chooses.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from gearshift.decide.split.actions import ACTIONS, BOTH, NAMES, NUM_ENGINES
from gearshift.decide.split.reward import SplitReward, split_reward
from gearshift.decide.split.view import Engines, EngineView
from gearshift.ir.snapshot import Sample, Snapshot
from gearshift.ir.topology import CALLER, team
from gearshift.plan.objective import SplitWeights
from gearshift.plan.plan import Plan
from gearshift.plan.split import COLUMNS, DEPTH, SPATIAL, Split

DRAM, L3 = "memory.dram_bytes_s", "cache.l3_hit_share"


@dataclass(frozen=True, slots=True, kw_only=True)
class Subject:
    """The model whose split is chosen, and between which engines."""

    engines: tuple[str, str]
    kind: str
    """Of the op that most of the arithmetic is in,"""
    dims: tuple[int, ...]
    """and the sizes of what that makes."""
    num_rows: int
    flops: float
    moved_bytes: float
    item_bytes: int
    read_bytes: float
    made_bytes: float
    """What goes in, and what comes out."""

    @classmethod
    def from_data(cls, data: Mapping[str, Any]) -> "Subject":
        return cls(**{**data, "engines": tuple(data["engines"]), "dims": tuple(data["dims"])})

    def link_share(self, split: Split | None) -> float:
        """Bytes that go to engines and come from them, as a share of what the model moves
        anyway."""
        if split is None:
            return 0.0
        reads = NUM_ENGINES if split.how == COLUMNS else 1  # each engine all of it
        makes = NUM_ENGINES if split.how == DEPTH else 1
        return min(1.0, (reads * self.read_bytes + makes * self.made_bytes) / self.moved_bytes)

    def action_of(self, plan: Plan) -> int | None:
        """None if it is none of those: cut in parts, eager, or on other engines."""
        if len(plan.regions) != 1 or plan.regions[0].rewrite.backend == "eager":
            return None
        region = plan.regions[0]
        if region.split is not None:
            name = str(region.split)
            return NAMES.index(name) if name in NAMES and region.engine == self.team else None
        if region.engine == CALLER:
            both = region.rewrite.threads in (None, NUM_ENGINES) and not region.rewrite.spin
            return BOTH if both else None
        return self.engines.index(region.engine) if region.engine in self.engines else None

    def alone(self, plans: Mapping[str, Plan], backend: str) -> Plan | None:
        """A plan of one thread that divides nothing."""
        for plan in plans.values():
            region = plan.regions[0]
            single = len(plan.regions) == 1 and region.split is None
            if single and region.rewrite.backend == backend and region.threads == 1:
                return plan
        return None

    @property
    def team(self) -> str:
        return team(self.engines)

    def choices(self, plans: Mapping[str, Plan]) -> dict[str, dict[int, Plan]]:
        """For each backend, the plan that stands for each action."""
        found: dict[str, dict[int, Plan]] = {}
        for plan in plans.values():
            action = self.action_of(plan)
            if action is not None:
                found.setdefault(plan.regions[0].rewrite.backend, {})[action] = plan
        return found


def engines_of(snapshot: Snapshot, subject: Subject, bandwidth_bytes_s: float | None) -> Engines:
    """As they were in the calls of the snapshot."""
    one, other = (
        EngineView(
            others_share=_reading(snapshot, f"core.{engine.removeprefix('cpu:')}.others_share"),
            run_delay_share=_reading(snapshot, f"thread.{engine}.run_delay_share"),
            dram_share=_dram_share(snapshot, bandwidth_bytes_s),
            l3_hit_share=_reading(snapshot, L3),
            pace=pace,
        )
        for engine, pace in zip(subject.engines, _paces(snapshot, subject), strict=True)
    )
    return one, other


def earned(
    sample: Sample, plan: Plan, action: int, subject: Subject, alone_s: float, weights: SplitWeights
) -> SplitReward:
    """What the calls of one plan were worth."""
    took_s = sum(sample.seconds) / len(sample.seconds)
    split = ACTIONS[action].split
    return split_reward(
        weights,
        took_s=took_s,
        alone_s=alone_s,
        busy_s=_busy_s(sample, action, subject),
        link_share=subject.link_share(split),
        held_share=float(_copies(split, plan.regions[0].rewrite.backend)),
    )


def _copies(split: Split | None, backend: str) -> int:
    """Of the weights: engines that do the same on other rows may share one build."""
    if split is None or split.how in (COLUMNS, DEPTH):
        return 1
    shared = split.how != SPATIAL and backend == "onnxruntime"
    return 1 if shared else NUM_ENGINES


def _busy_s(sample: Sample, action: int, subject: Subject) -> list[float]:
    """What the threads of a backend do among themselves it does not tell."""
    if action == BOTH:
        return []
    done = next(iter(sample.parts.values()), {})
    return [done.get(engine, (0.0, 0.0))[1] for engine in subject.engines]


def _paces(snapshot: Snapshot, subject: Subject) -> list[float | None]:
    """As shares of the faster one's, from the last calls in which both were at work."""
    unknown: list[float | None] = [None] * NUM_ENGINES
    for sample in reversed(snapshot.samples):
        for done in sample.parts.values():
            work = [done.get(engine, (0.0, 0.0)) for engine in subject.engines]
            if all(share > 0 and busy_s > 0 for share, busy_s in work):
                speeds = [share / busy_s for share, busy_s in work]
                return [speed / max(speeds) for speed in speeds]
    return unknown


def _dram_share(snapshot: Snapshot, bandwidth_bytes_s: float | None) -> float | None:
    moved = _reading(snapshot, DRAM)
    return None if moved is None or not bandwidth_bytes_s else min(1.0, moved / bandwidth_bytes_s)


def _reading(snapshot: Snapshot, name: str) -> float | None:
    metric = snapshot.readings.get(name)
    return None if metric is None else metric.value
