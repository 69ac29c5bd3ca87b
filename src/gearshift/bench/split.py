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
from dataclasses import dataclass, replace
from functools import cache, partial
from math import log
from tempfile import TemporaryDirectory
from time import perf_counter
from typing import Any

import numpy as np
import torch

from gearshift.bench import runtime as peers
from gearshift.bench.divided import Divided, block, divided, in_blocks, timed
from gearshift.bench.neighbours import Neighbour, busy
from gearshift.bench.parts import Built, drawn, regions
from gearshift.bench.score import Slices
from gearshift.bench.split_score import best_s, settled, summary_of
from gearshift.bench.traces import traces
from gearshift.capture.load import load
from gearshift.decide.keep import Keep
from gearshift.decide.learn.dqn import Dqn
from gearshift.decide.split.actions import FOLLOW, NAMES
from gearshift.decide.split.agent import ROLE, SHIPPED
from gearshift.decide.split.players import Bandit, Greedy, Learned, Player, Share
from gearshift.decide.split.profiling import Experience
from gearshift.decide.split.sight import view_of
from gearshift.decide.split.view import EngineView, SplitView, foreseen
from gearshift.ir.measurement import Metric
from gearshift.ir.snapshot import Sample, Situation, Snapshot
from gearshift.observe.hal import open_hal
from gearshift.observe.sampler import mean_parts
from gearshift.runtime import adapt
from gearshift.sim.profiles import SHIPPED as PROFILES
from gearshift.sim.profiles import read_profiles
from gearshift.sim.split_training import divided as held_out

Say = Callable[[str], None]
BACKEND, OTHER = "onnxruntime", "openvino"
"""Players choose among the ways of the first; the oracle, among those of both."""
ENGINES = {"1:1": 0, "2:1": 1, "3:1": 2}
"""How fast the two engines are, and how many neighbours on the second one's core make them so."""
ITSELF = "by itself"
"""The runtime, with nobody telling it what to do."""
STEP = (0, 1, 0)
"""Neighbours, one phase after the other."""
LOOK_S = 0.3
LOOKS = 6
"""So often a policy looks and chooses before its choice counts."""
ONE_ROW = peers.Pace(phase_s=4.0, traces=("quiet", "neighbour"))
MANY_ROWS = peers.Pace(phase_s=4.0)


@dataclass(frozen=True, slots=True, kw_only=True)
class Pace:
    rounds: int = 4
    """Turns of each way to divide."""
    batches: tuple[int, ...] = (1, 8)
    every: int = 1
    """Of the regions, so many at a time are passed over but for one."""
    serve_s: float = 10.0
    """How long the runtime serves by itself beside neighbours before it counts."""
    step_calls: int = 120
    """In each of the three phases of a step."""
    models: tuple[str, ...] = ("resnet18@8", "mobilenet_v2@8", "minilm@8")
    one_row: tuple[str, ...] = ("resnet18", "mobilenet_v2")
    """Models of one row, and those of many above, beside their peers; none if empty."""


QUICK = Pace(
    rounds=2,
    every=8,
    serve_s=3.0,
    step_calls=40,
    models=("mobilenet_v2@8",),
    one_row=(),
)


def measure(*, seed: int, cores: Sequence[int], pace: Pace, say: Say) -> dict[str, Any]:
    agent = Dqn(ROLE.read(SHIPPED).network, prior=foreseen)
    bandit = Bandit(np.random.default_rng(seed))
    players: list[Player] = [Share(), Greedy(), bandit, Learned(agent)]
    with _home_of_its_own():
        cases = [
            case
            for name, make in list(regions(pace.batches).items())[:: pace.every]
            for case in _region_cases(name, drawn(make), players, cores, pace, say)
        ]
    decision_s = _decision_s(players[-1], _some_view())
    steps = [_step_case(name, load(name), cores, pace, say) for name in pace.models]
    beside = _beside_peers(seed, cores, pace, say) if pace.one_row else []
    models = [case for found in beside for case in found["cases"]]
    return {
        "seed": seed,
        "noise": statistics.geometric_mean(f["noise"] for f in beside) if beside else None,
        "void": any(found["void"] for found in beside),
        "cases": cases,
        "steps": steps,
        "models": models,
        "summary": summary_of(cases, steps, models),
        "decision_s": decision_s,
    }


def _beside_peers(seed: int, cores: Sequence[int], pace: Pace, say: Say) -> list[dict[str, Any]]:
    """As `gearshift bench runtime` measures them, beside one neighbour on the second core; those of
    many rows while neighbours come and go, too."""
    found = []
    for models, theirs in ((pace.one_row, ONE_ROW), (pace.models, MANY_ROWS)):
        trace = traces(seed, cores, theirs.phase_s, theirs.changes)
        trace["neighbour"] = (replace(trace["neighbour"][0], neighbours=_neighbours(1, cores)),)
        found.append(
            peers.measure(models, seed=seed, cores=cores, pace=theirs, say=say, trace=trace)
        )
    return found


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


def _neighbours(count: int, cores: Sequence[int]) -> tuple[Neighbour, ...]:
    return (Neighbour(kind="arithmetic", core=cores[1]),) * count


def _region_cases(
    name: str, built: Built, players: Sequence[Player], cores: Sequence[int], pace: Pace, say: Say
) -> list[dict[str, Any]]:
    model, args = built
    found = []
    with (
        adapt(model, args, policy=Keep.name) as runtime,
        divided(name, runtime, args, backend=BACKEND, say=say) as region,
        divided(name, runtime, args, backend=OTHER, say=say) as other,
        adapt(model, args) as serving,
    ):
        for engines, count in ENGINES.items():
            say(f"{name}: engines {engines}")
            with busy(_neighbours(count, cores)):
                _serve(serving, args, pace.serve_s)
                ways: dict[str, Callable[[], Any]] = {
                    **{action: partial(region.call, action) for action in region.ready},
                    **{by_other(action): partial(other.call, action) for action in other.ready},
                    ITSELF: partial(serving, *args),
                }
                slices = in_blocks(ways, pace.rounds)
                chosen = {player.name: _chosen(player, region) for player in players}
                about = {"region": name, "engines": engines, "unseen": name in _unseen()}
                found.append(_case(about, slices, chosen, serving.plan.summary))
    return found


def by_other(action: str) -> str:
    return f"{action} by {OTHER}"


@cache
def _unseen() -> frozenset[str]:
    """Regions that the shipped agent was not trained on."""
    return frozenset(profile.name for profile in held_out(read_profiles(PROFILES))[1])


def _serve(call: Callable[..., Any], args: tuple[Any, ...], seconds: float) -> None:
    end_s = perf_counter() + seconds
    with torch.no_grad():
        while perf_counter() < end_s:
            call(*args)


def _case(
    about: dict[str, Any], slices: Mapping[str, Slices], chosen: Mapping[str, str], plan: str
) -> dict[str, Any]:
    every_way = {name: found for name, found in slices.items() if name != ITSELF}
    ways = {name: found for name, found in every_way.items() if name in NAMES}
    oracle_s, players_oracle_s = best_s(every_way), best_s(ways)
    means_s = {name: statistics.fmean(found.calls()) for name, found in slices.items()}
    fixed = {name: found for name, found in ways.items() if name != NAMES[FOLLOW]}
    return {
        "case": about,
        "ways_s": means_s,
        "oracle": min(every_way, key=lambda name: means_s[name]),
        "oracle_s": oracle_s,
        "players_oracle_s": players_oracle_s,
        "best_fixed_s": best_s(fixed),
        "by_itself": {"plan": plan, "of_oracle": oracle_s / means_s[ITSELF]},
        "players": {
            player: {"action": action, "of_oracle": players_oracle_s / means_s[action]}
            for player, action in chosen.items()
        },
    }


def _chosen(player: Player, region: Divided) -> str:
    """What it settles on, looking at the machine while its last choice runs."""
    action = "none both" if "none both" in region.ready else next(iter(region.ready))
    experience = Experience()
    view, _ = _look(region, action, experience, None)
    for _ in range(LOOKS):
        action = NAMES[player.choose(view)]
        after, took_s = _look(region, action, experience, view)
        reward = -log(took_s / view.alone_s)
        player.learn(view, NAMES.index(action), reward, after)
        view = after
    return NAMES[player.choose(view)]


def _look(
    region: Divided, action: str, experience: Experience, before: SplitView | None
) -> tuple[SplitView, float]:
    """What is seen while this runs, and what a call takes then."""
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
    if before is not None:
        experience.note(before, NAMES.index(action), statistics.fmean(took_s))
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
    view = view_of(
        snapshot,
        region.subject,
        in_force=NAMES.index(action),
        legal=legal,
        alone_s=alone_s,
        bandwidth_bytes_s=None,
        experience=experience,
    )
    return view, statistics.fmean(took_s)


def _step_case(
    name: str, loaded: tuple[Any, Any], cores: Sequence[int], pace: Pace, say: Say
) -> dict[str, Any]:
    """Rows that follow, and the runtime by itself once it knows both situations, while a neighbour
    comes and goes; against the best way under each."""
    model, args = loaded
    only = [n for n in NAMES if n.startswith(("none", "rows"))]
    with (
        adapt(model, args, policy=Keep.name) as runtime,
        divided(name, runtime, args, backend=BACKEND, say=say, only=only) as whole,
        divided(name, runtime, args, backend=OTHER, say=say, only=only) as other,
        adapt(model, args) as serving,
    ):
        ways = {action: partial(whole.call, action) for action in whole.ready}
        ways |= {by_other(action): partial(other.call, action) for action in other.ready}
        oracles_s = []
        for count in (0, 1):
            say(f"{name}: every way, {count} neighbours")
            with busy(_neighbours(count, cores)):
                _serve(serving, args, pace.serve_s)
                oracles_s.append(best_s(in_blocks(ways, max(2, pace.rounds // 2))))
        ideal_s = [oracles_s[count] for count in STEP]
        say(f"{name}: a neighbour comes and goes")
        calls = {NAMES[FOLLOW]: ways[NAMES[FOLLOW]], ITSELF: partial(serving, *args)}
        steps = {way: _stepped(call, ideal_s, cores, pace) for way, call in calls.items()}
    return {"case": {"model": name, "trace": "step"}, "oracle_s": ideal_s, "steps": steps}


def _stepped(
    call: Callable[[], Any], ideal_s: Sequence[float], cores: Sequence[int], pace: Pace
) -> dict[str, Any]:
    """Every call counts, the first one after a change, too."""
    call()
    phases = []
    for count in STEP:
        with busy(_neighbours(count, cores)):
            phases.append(timed(call, pace.step_calls))
    took_s = sum(sum(phase) for phase in phases)
    best = sum(ideal * len(phase) for ideal, phase in zip(ideal_s, phases, strict=True))
    return {
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
        dims=(8, 64, 56, 56),
        num_rows=8,
        flops=1e9,
        moved_bytes=1e8,
        item_bytes=4,
        in_force=NAMES[FOLLOW],
        alone_s=0.02,
        foreseen_s=estimates,
        estimates_s=estimates,
    )


def _decision_s(player: Player, view: SplitView) -> float:
    """What one choice takes, the median of many."""
    return statistics.median(block(lambda: player.choose(view), 500))
