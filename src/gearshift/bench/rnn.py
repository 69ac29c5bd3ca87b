"""`gearshift bench rnn`: recurrent layers beside torch's own, ONNX Runtime and OpenVINO.

Each contender in a process of its own; Gearshift lives for a while, then all take turns, on a quiet
machine and beside a neighbour on one core. Ragged batches are run packed and padded.
"""

import statistics
from collections.abc import Sequence
from dataclasses import dataclass, replace
from random import Random
from time import perf_counter
from typing import Any

from gearshift.bench.arena import Setting
from gearshift.bench.rnn_models import PADDED, RAGGED, SKEWED, STREAMING, UNIFORM
from gearshift.bench.rnn_score import summary_of
from gearshift.bench.score import TWICE
from gearshift.bench.side_by_side import SidePace, side_by_side
from gearshift.bench.stage import LifePace, Say, Stage, Turns, stage_of
from gearshift.capture.load import load
from gearshift.decide.keep import Keep
from gearshift.errors import GearshiftError
from gearshift.ir.topology import CALLER
from gearshift.plan import Rewrite
from gearshift.plan.cut import around
from gearshift.plan.unroll import SetUnroll, Steps, alike
from gearshift.runtime import adapt

MODELS = "gearshift.bench.rnn_models"
SWITCHED, SWITCHES = "lstm_l2_h64_t64_b1_uniform", 200
LIFE, BESIDE = LifePace(seconds=25.0, longer=1), LifePace(seconds=12.0, longer=0)
TURNS = Turns(slice_s=0.5, rounds=6, min_calls=20, far=3.0)
CASES = (
    *("lstm_l1_h64_t16_b1", "lstm_l1_h256_t100_b8", "lstm_l1_h1024_t16_b1"),
    *("lstm_l2_h256_t100_b1", "lstm_l2_h256_t100_b8", "lstm_l2_h512_t200_b32"),
    *("lstm_l4_h128_t1000_b1", "lstm_l4_h256_t200_b8", "gru_l2_h256_t100_b8"),
    *("gru_l3_h512_t100_b1", "gru_l4_h64_t1000_b8"),
)


def _named(lengths: str, *cases: str) -> tuple[str, ...]:
    return tuple(f"{case}_{lengths}" for case in cases)


@dataclass(frozen=True, slots=True, kw_only=True)
class Pace(SidePace):
    life: LifePace = LIFE
    beside: LifePace = BESIDE
    turns: Turns = TURNS
    cases: tuple[str, ...] = (
        *_named(UNIFORM, *CASES),
        *_named(RAGGED, "lstm_l2_h256_t200_b32", "gru_l2_h256_t200_b32", "lstm_l1_h512_t100_b8"),
        *_named(SKEWED, "lstm_l2_h256_t200_b32", "gru_l1_h512_t100_b8"),
        *_named(STREAMING, "lstm_l2_h256_t4_b1", "gru_l2_h256_t4_b1", "silero_l1_h128_t31_b1"),
    )


QUICK = Pace(
    life=LifePace(seconds=15.0, longer=0),
    beside=LifePace(seconds=8.0, longer=0),
    turns=Turns(slice_s=0.5, rounds=4, min_calls=8, most=4),
    cases=(
        *_named(UNIFORM, "lstm_l2_h256_t100_b8"),
        *_named(SKEWED, "lstm_l2_h256_t200_b32"),
    ),
)


def measure(*, seed: int, cores: Sequence[int], pace: Pace, say: Say) -> dict[str, Any]:
    """The seed says on which core the neighbour of each case is."""
    draw = Random(seed)
    say("what a switch costs")
    found_s = switch_s()
    cases = [case for name in pace.cases for case in _tried(name, draw.choice(cores), pace, say)]
    return {"seed": seed, **summary_of(cases), "switch_s": found_s, "cases": cases}


def switch_s() -> float:
    """What it takes to put other settings in force, for calls under way and those to come: the
    median of many times to and fro between plans that stand by."""
    model, args = load(f"{MODELS}:{SWITCHED}")
    with adapt(model, args, policy=Keep.name) as runtime:
        rest = around(runtime.program.graph, runtime.space.stacks, Rewrite())
        (region,) = [r for r in rest.regions if r.name in runtime.space.stacks]
        num_layers = runtime.space.stacks[region.name].num_layers
        plans = [
            SetUnroll(
                region=region.name, engine=CALLER, unroll=alike(num_layers, Steps(then=factor))
            ).apply(rest, runtime.program.graph)
            for factor in (16, 32)
        ]
        changes = runtime._changes
        for plan in plans:
            changes.stand_by(plan, "to be switched to")
        took_s = []
        for turn in range(SWITCHES):
            start_s = perf_counter()
            changes.adopt(plans[turn % 2], "switched", None, build=False)
            took_s.append(perf_counter() - start_s)
            runtime(*args)
        return statistics.median(took_s)


def _tried(name: str, core: int, pace: Pace, say: Say) -> list[dict[str, Any]]:
    """A case that fails tells why and leaves the others their time."""
    try:
        with stage_of(f"{MODELS}:{name}", say) as stage:
            return _cases(stage, name, core, pace)
    except (GearshiftError, LookupError, OSError, RuntimeError, TypeError, ValueError) as error:
        say(f"{name} failed: {error}")
        return [{"case": {"model": name}, "failed": f"{type(error).__name__}: {error}"}]


def settings(name: str) -> dict[str, Setting]:
    """Torch's own, ONNX Runtime and OpenVINO, with all threads and with one; of a ragged batch,
    padded, too: ONNX has no packed ones."""
    ragged = name.endswith((RAGGED, SKEWED))
    padded = f"{MODELS}:{name}{PADDED}" if ragged else ""
    found = {"eager": Setting(kind="eager")}
    if ragged:
        found["padded"] = Setting(kind="eager", instead=padded)
    found |= {kind: Setting(kind=kind, instead=padded) for kind in ("onnxruntime", "openvino")}
    found |= {f"{peer} x1": replace(setting, threads=1) for peer, setting in found.items()}
    still = {"onnxruntime still": replace(found["onnxruntime"], spin=False)}
    return {**found, **still, TWICE: found["onnxruntime"]}


def _cases(stage: Stage, name: str, core: int, pace: Pace) -> list[dict[str, Any]]:
    wanted = settings(name)
    try:
        stage.export(instead=wanted["onnxruntime"].instead)
    except GearshiftError as error:  # then those who run ONNX are left out
        stage.say(f"{name}: {error}")
    about = {"model": name, **_sizes(name)}
    return side_by_side(stage, wanted, about, core=core, pace=pace)


def _sizes(name: str) -> dict[str, Any]:
    kind, layers, hidden, steps, _, lengths = name.split("_")
    sizes = {"layers": int(layers[1:]), "hidden": int(hidden[1:]), "steps": int(steps[1:])}
    return {"kind": kind, **sizes, "lengths": lengths}
