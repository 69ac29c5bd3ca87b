"""`gearshift bench split`: regions and models divided over two engines, equal or not.

Every legal way to divide is measured in turns beside the same neighbours: the best of them is the
oracle. What policies choose from what they see is told as a share of that; how the runtime does by
itself, too. Then a neighbour comes and goes in the middle, and calls are counted until the shares
have followed. Whole models are set beside their peers as in `gearshift bench runtime`.
"""

import os
import statistics
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from tempfile import TemporaryDirectory
from time import perf_counter
from typing import Any

import torch

from gearshift.bench import runtime as peers
from gearshift.bench.divided import Divided, block, divided, in_blocks
from gearshift.bench.neighbours import Neighbour, busy
from gearshift.bench.regions import Built, drawn, regions
from gearshift.bench.score import Slices
from gearshift.bench.split_score import best_s, settled, summary_of
from gearshift.bench.traces import LONG, Phase
from gearshift.capture.load import load
from gearshift.decide.keep import Keep
from gearshift.decide.learn.dqn import Dqn
from gearshift.decide.split.actions import FOLLOW, NAMES
from gearshift.decide.split.agent import SHIPPED, read_agent
from gearshift.decide.split.players import Greedy, Learned, Player, Share
from gearshift.decide.split.sight import view_of
from gearshift.decide.split.view import EngineView, SplitView, foreseen
from gearshift.ir.measurement import Metric
from gearshift.ir.snapshot import Sample, Situation, Snapshot
from gearshift.observe.hal import open_hal
from gearshift.observe.sampler import mean_parts
from gearshift.runtime import adapt

Say = Callable[[str], None]
BACKEND = "onnxruntime"
ENGINES = {"1:1": 0, "2:1": 1, "3:1": 2}
"""How fast the two engines are, and how many neighbours on the second one's core make them so."""
LOOK_S = 0.3
LOOKS = 3
"""So often a policy looks and chooses before its choice counts."""
PEERS_PACE = peers.Pace(phase_s=4.0, traces=("quiet", "neighbour"))


@dataclass(frozen=True, slots=True, kw_only=True)
class Pace:
    rounds: int = 6
    """Turns of each way to divide."""
    batches: tuple[int, ...] = (8,)
    every: int = 1
    """Of the regions, so many at a time are passed over but for one."""
    serve_s: float = 6.0
    """How long the runtime serves by itself beside neighbours before it counts."""
    step_calls: int = 120
    """In each of the three phases of a step."""
    models: tuple[str, ...] = ("resnet18@8", "mobilenet_v2@8", "minilm@8")
    beside_peers: tuple[str, ...] = (
        *("resnet18@8", "mobilenet_v2@8", "minilm@8"),
        *("resnet18", "mobilenet_v2"),
    )


QUICK = Pace(
    rounds=2,
    every=5,
    serve_s=3.0,
    step_calls=40,
    models=("mobilenet_v2@8",),
    beside_peers=(),
)


def measure(*, seed: int, cores: Sequence[int], pace: Pace, say: Say) -> dict[str, Any]:
    agent = Dqn(read_agent(SHIPPED).network, prior=foreseen)
    players: list[Player] = [Share(), Greedy(), Learned(agent)]
    with _home_of_its_own():
        cases = [
            case
            for name, make in list(regions(pace.batches).items())[:: pace.every]
            for case in _region_cases(name, drawn(make), players, cores, pace, say)
        ]
    decision_s = _decision_s(players[-1], _some_view())
    steps = [_step_case(name, load(name), cores, pace, say) for name in pace.models]
    beside: dict[str, Any] = {}
    if pace.beside_peers:
        beside = peers.measure(
            pace.beside_peers,
            seed=seed,
            cores=cores,
            pace=PEERS_PACE,
            say=say,
            trace=_one_neighbour(cores, PEERS_PACE.phase_s),
        )
    return {
        "seed": seed,
        "noise": beside.get("noise", 1.0),
        "void": beside.get("void", False),
        "cases": cases,
        "steps": steps,
        "models": beside.get("cases", []),
        "summary": summary_of(cases, steps, beside.get("cases", [])),
        "decision_s": decision_s,
    }


@contextmanager
def _home_of_its_own() -> Iterator[None]:
    """What was learned before would help; what is learned here is of no use to others."""
    before = os.environ.get("GEARSHIFT_HOME")
    with TemporaryDirectory(prefix="gearshift-") as folder:
        os.environ["GEARSHIFT_HOME"] = folder
        try:
            yield
        finally:
            del os.environ["GEARSHIFT_HOME"]
            if before is not None:
                os.environ["GEARSHIFT_HOME"] = before


def _neighbours(count: int, cores: Sequence[int]) -> list[Neighbour]:
    return [Neighbour(kind="arithmetic", core=cores[1])] * count


def _one_neighbour(cores: Sequence[int], phase_s: float) -> dict[str, tuple[Phase, ...]]:
    one = tuple(_neighbours(1, cores))
    return {
        "quiet": (Phase(neighbours=(), seconds=LONG * phase_s),),
        "neighbour": (Phase(neighbours=one, seconds=LONG * phase_s),),
    }


def _region_cases(
    name: str, built: Built, players: Sequence[Player], cores: Sequence[int], pace: Pace, say: Say
) -> list[dict[str, Any]]:
    model, args = built
    found = []
    with (
        adapt(model, args, policy=Keep.name) as runtime,
        divided(name, runtime, args, backend=BACKEND, say=say) as region,
    ):
        for engines, count in ENGINES.items():
            say(f"{name}: engines {engines}")
            with busy(_neighbours(count, cores)), adapt(model, args, policy="bandit") as serving:
                _serve(serving, args, pace.serve_s)
                ways: dict[str, Callable[[], Any]] = {
                    action: partial(region.call, action) for action in region.ready
                }
                ways["by itself"] = partial(serving, *args)
                slices = in_blocks(ways, pace.rounds)
                chosen = {player.name: _chosen(player, region) for player in players}
                about = {"region": name, "engines": engines}
                found.append(_case(about, slices, chosen, serving.plan.summary))
    return found


def _serve(call: Callable[..., Any], args: tuple[Any, ...], seconds: float) -> None:
    end_s = perf_counter() + seconds
    with torch.no_grad():
        while perf_counter() < end_s:
            call(*args)


def _case(
    about: dict[str, str], slices: Mapping[str, Slices], chosen: Mapping[str, str], plan: str
) -> dict[str, Any]:
    ways = {name: found for name, found in slices.items() if name != "by itself"}
    oracle_s = best_s(ways)
    means_s = {name: statistics.fmean(found.calls()) for name, found in slices.items()}
    fixed = {name: found for name, found in ways.items() if name != NAMES[FOLLOW]}
    return {
        "case": about,
        "ways_s": means_s,
        "oracle": min(ways, key=lambda name: means_s[name]),
        "oracle_s": oracle_s,
        "best_fixed_s": best_s(fixed),
        "by_itself": {"plan": plan, "of_oracle": oracle_s / means_s["by itself"]},
        "players": {
            player: {"action": action, "of_oracle": oracle_s / means_s[action]}
            for player, action in chosen.items()
        },
    }


def _chosen(player: Player, region: Divided) -> str:
    """What it settles on, looking at the machine while its last choice runs."""
    action = "none both" if "none both" in region.ready else next(iter(region.ready))
    for _ in range(LOOKS):
        action = NAMES[player.choose(_look(region, action))]
    return action


def _look(region: Divided, action: str) -> SplitView:
    counters = open_hal()
    for name, thread in region.runtime._pool.threads().items():
        counters.watch_thread(name, thread)
    counters.read()
    took_s: list[float] = []
    end_s = perf_counter() + LOOK_S
    while perf_counter() < end_s:
        took_s += block(lambda: region.call(action), 1)
    readings: dict[str, Metric] = counters.read()
    counters.close()
    timings = list(region.ready[action].executor.timings())[-len(took_s) :]
    situation = Situation(signature=region.name, neighbours=0)
    sample = Sample(
        plan=action,
        situation=situation,
        seconds=tuple(took_s),
        parts=mean_parts([timing.parts for timing in timings]),
    )
    snapshot = Snapshot(
        at_s=0.0,
        plan=action,
        trial=None,
        situation=situation,
        samples=(sample,),
        readings=readings,
    )
    legal = {NAMES.index(name): region.ready[name].executor.plan for name in region.ready}
    alone_s = statistics.fmean(block(lambda: region.call("none 0"), 3))
    return view_of(
        snapshot,
        region.subject,
        in_force=NAMES.index(action),
        legal=legal,
        alone_s=alone_s,
        bandwidth_bytes_s=None,
    )


def _step_case(
    name: str, loaded: tuple[Any, Any], cores: Sequence[int], pace: Pace, say: Say
) -> dict[str, Any]:
    """Rows that follow, while a neighbour comes and goes; against the best way under each."""
    model, args = loaded
    follow = NAMES[FOLLOW]
    only = [n for n in NAMES if n.startswith(("none", "rows"))]
    with (
        adapt(model, args, policy=Keep.name) as runtime,
        divided(name, runtime, args, backend=BACKEND, say=say, only=only) as whole,
    ):
        ways = {action: partial(whole.call, action) for action in whole.ready}
        oracles_s = []
        for count in (0, 1):
            say(f"{name}: every way, {count} neighbours")
            with busy(_neighbours(count, cores)):
                oracles_s.append(best_s(in_blocks(ways, max(2, pace.rounds // 2))))
        say(f"{name}: a neighbour comes and goes")
        phases = []
        for count in (0, 1, 0):
            with busy(_neighbours(count, cores)):
                phases.append(block(ways[follow], pace.step_calls))
    ideal_s = [oracles_s[count] for count in (0, 1, 0)]
    took_s = sum(sum(phase) for phase in phases)
    best = sum(ideal * len(phase) for ideal, phase in zip(ideal_s, phases, strict=True))
    return {
        "case": {"model": name, "trace": "step"},
        "oracle_s": ideal_s,
        "phase_s": [statistics.fmean(phase) for phase in phases],
        "calls_to_follow": [
            settled(phase, ideal) for phase, ideal in zip(phases[1:], ideal_s[1:], strict=True)
        ],
        "regret": took_s / best - 1,
    }


def _some_view() -> SplitView:
    estimates = dict.fromkeys(NAMES, 0.01)
    return SplitView(
        engines=(EngineView(others_share=0.1), EngineView(others_share=0.5)),
        kind="conv",
        num_rows=8,
        flops=1e9,
        moved_bytes=1e8,
        item_bytes=4,
        in_force=NAMES[FOLLOW],
        alone_s=0.02,
        estimates_s=estimates,
    )


def _decision_s(player: Player, view: SplitView) -> float:
    """What one choice takes, the median of many."""
    return statistics.median(block(lambda: player.choose(view), 500))
