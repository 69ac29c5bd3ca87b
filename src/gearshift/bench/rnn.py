"""`gearshift bench rnn`: recurrent layers beside torch's own, ONNX Runtime and OpenVINO.

Each contender in a process of its own; Gearshift lives for a while, then all take turns, on a quiet
machine and beside a neighbour on one core. Ragged batches are run packed and padded.
"""

import statistics
import threading
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, replace
from random import Random
from time import perf_counter, sleep
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
from gearshift.ir.topology import CALLER, team
from gearshift.plan import Rewrite
from gearshift.plan.cut import around
from gearshift.plan.split import single_cores
from gearshift.plan.unroll import SetUnroll, Steps, Way, alike
from gearshift.runtime import Runtime, adapt

MODELS = "gearshift.bench.rnn_models"
SWITCHED, SWITCHES, PAUSE_S = "lstm_l2_h256_t200_b8_uniform", 100, 0.05
LIFE, BESIDE = LifePace(seconds=25.0, longer=1), LifePace(seconds=12.0, longer=0)
TURNS = Turns(slice_s=0.5, rounds=6, min_calls=20, far=3.0)
CASES = (
    *("lstm_l2_h64_t1000_b1", "lstm_l1_h256_t100_b8", "lstm_l1_h1024_t16_b1"),
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
        *_named(STREAMING, "lstm_l2_h512_t8_b8", "gru_l2_h512_t8_b8", "silero_l1_h128_t31_b1"),
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


def switch_s() -> dict[str, float]:
    """What a call under way waits where it goes on by another plan, from the end of one chunk to
    the beginning of the next: the median of many times to and fro between plans that stand by."""
    model, args = load(f"{MODELS}:{SWITCHED}")
    with adapt(model, args, policy=Keep.name) as runtime:
        (stack,) = runtime.space.stacks.values()
        some, others = (alike(stack.num_layers, Steps(then=size)) for size in (8, 16))
        together = team(single_cores(runtime.space))
        pairs = {
            "settings": (Way(CALLER, some), Way(CALLER, others)),
            "engines": (Way(CALLER, some), Way(together, some)),
        }
        return {name: _switched_s(runtime, args, pair) for name, pair in pairs.items()}


def _switched_s(runtime: Runtime, args: tuple[Any, ...], pair: Sequence[Way]) -> float:
    (region,), graph = runtime.space.stacks, runtime.program.graph
    rest = around(graph, (region,), Rewrite())
    plans = [SetUnroll(region=region, **way._asdict()).apply(rest, graph) for way in pair]
    for plan in plans:
        runtime._changes.stand_by(plan, "to be switched to")
    over = threading.Event()

    def call() -> None:
        while not over.is_set():
            runtime(*args)

    began_s, caller = perf_counter(), threading.Thread(target=call)
    caller.start()
    for turn in range(SWITCHES):
        runtime._changes.adopt(plans[turn % 2], "switched", None, build=False)
        sleep(PAUSE_S)
        deque(runtime._serving.timings(), maxlen=0)
    over.set()
    caller.join()
    strides = [s for mine in runtime._serving.strides.by_layer().values() for s in mine]
    found = [s.switch_s for s in strides if s.switch_s is not None and s.begin_s > began_s]
    if not found:
        raise GearshiftError("no call was under way when its plan changed")
    return statistics.median(found)


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
