"""All the control plane gets to see of the data plane, as plain data.

Must not know who takes snapshots or who reads them.
"""

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

from gearshift.ir.measurement import Measurement, Metric, Source
from gearshift.ir.work import Work


@dataclass(frozen=True, slots=True, kw_only=True)
class Situation:
    """What a measurement holds for: what comes in, and who else uses the machine."""

    signature: str
    neighbours: int
    """How many cores' worth of work others want at the moment, rounded."""

    def __str__(self) -> str:
        others = {0: "quiet", 1: "1 neighbour"}.get(
            self.neighbours, f"{self.neighbours} neighbours"
        )
        return f"{self.signature}, {others}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Sample:
    """The calls of one plan in one situation since the last snapshot."""

    plan: str
    situation: Situation
    seconds: tuple[float, ...]
    region_s: Mapping[str, float] = field(default_factory=dict)
    """For each region by name, its mean part of a call; empty where no plan ran."""
    parts: Mapping[str, Mapping[str, tuple[float, float]]] = field(default_factory=dict)
    """For each region that ran elsewhere than with the caller, by engine: its share of the work,
    and how long it was at it in a call, on average."""
    work: Work | None = None
    """Of one call; None where it cannot be counted."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LayerSeen:
    """What one layer of a recurrent region did in the calls since the last snapshot."""

    region: str
    layer: int
    busy_s: float
    """At work, in all directions and on all engines together."""
    num_steps: int
    """In all calls,"""
    row_steps: int
    """and as many times the rows each had;"""
    num_walks: int
    """through the sequence: one a call, or one for each direction or share of the rows."""
    most_steps: int
    """Of one call,"""
    most_rows: int
    """and of one step."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Snapshot:
    at_s: float
    plan: str
    """The fingerprint of the plan in force."""
    trial: str | None
    """Of the plan that takes turns with it, if there is one."""
    situation: Situation | None
    """None as long as no call has come."""
    samples: tuple[Sample, ...] = ()
    """Of the calls that tell something; those beside other work of ours do not."""
    served_s: float = 0.0
    """Time in all calls since the last snapshot,"""
    num_calls: int = 0
    """and how many there were."""
    energy_j: float | None = None
    """Per call of the plan that ran, measured or modelled as `readings` tell; None if calls did not
    fill most of the time, or were not all of one plan and signature."""
    held_bytes: int = 0
    ready: tuple[str, ...] = ()
    """Plans that could serve at once, by fingerprint; the one in force is among them."""
    may_build: bool = True
    """Whether there is time left to build others that may be better."""
    measured: tuple[Measurement, ...] = ()
    """Regions timed by themselves, as was asked for."""
    shares: Mapping[str, float] = field(default_factory=dict)
    """By engine, of the work of the regions that the plan in force divides; empty if there are
    none."""
    layers: tuple[LayerSeen, ...] = ()
    """Of the recurrent regions that the plan in force unrolls; none while two plans take turns."""
    readings: Mapping[str, Metric] = field(default_factory=dict)


def to_data(snapshot: Snapshot) -> dict[str, Any]:
    """By hand: this is done several times a second beside the calls."""
    readings = {n: (metric.value, metric.source) for n, metric in snapshot.readings.items()}
    return {
        "at_s": snapshot.at_s,
        "plan": snapshot.plan,
        "trial": snapshot.trial,
        "situation": snapshot.situation and _situation_to_data(snapshot.situation),
        "samples": [sample_to_data(sample) for sample in snapshot.samples],
        "served_s": snapshot.served_s,
        "num_calls": snapshot.num_calls,
        "energy_j": snapshot.energy_j,
        "held_bytes": snapshot.held_bytes,
        "ready": snapshot.ready,
        "may_build": snapshot.may_build,
        "measured": [asdict(row) for row in snapshot.measured],
        "shares": dict(snapshot.shares),
        "layers": [asdict(layer) for layer in snapshot.layers],
        "readings": readings,
    }


def sample_to_data(sample: Sample) -> dict[str, Any]:
    return {
        "plan": sample.plan,
        "situation": _situation_to_data(sample.situation),
        "seconds": sample.seconds,
        "region_s": dict(sample.region_s),
        "parts": {region: dict(engines) for region, engines in sample.parts.items()},
        "work": sample.work and asdict(sample.work),
    }


def _situation_to_data(situation: Situation) -> dict[str, Any]:
    return {"signature": situation.signature, "neighbours": situation.neighbours}


def sample_from_data(data: Mapping[str, Any]) -> Sample:
    return Sample(
        plan=data["plan"],
        situation=Situation(**data["situation"]),
        seconds=tuple(data["seconds"]),
        region_s=data["region_s"],
        parts={
            region: {name: (share, busy_s) for name, (share, busy_s) in engines.items()}
            for region, engines in data["parts"].items()
        },
        work=data["work"] and Work(**data["work"]),
    )


def from_data(data: Mapping[str, Any]) -> Snapshot:
    situation = data["situation"]
    readings = {
        name: Metric(value=value, source=Source(source))
        for name, (value, source) in data["readings"].items()
    }
    return Snapshot(
        at_s=data["at_s"],
        plan=data["plan"],
        trial=data["trial"],
        situation=None if situation is None else Situation(**situation),
        samples=tuple(map(sample_from_data, data["samples"])),
        served_s=data["served_s"],
        num_calls=data["num_calls"],
        energy_j=data["energy_j"],
        held_bytes=data["held_bytes"],
        ready=tuple(data["ready"]),
        may_build=data["may_build"],
        measured=tuple(map(_measurement, data["measured"])),
        shares=data["shares"],
        layers=tuple(LayerSeen(**layer) for layer in data["layers"]),
        readings=readings,
    )


def _measurement(data: Mapping[str, Any]) -> Measurement:
    held = Metric(value=data["held_bytes"]["value"], source=Source(data["held_bytes"]["source"]))
    return Measurement(**{**data, "ops": tuple(data["ops"]), "held_bytes": held})
