"""`gearshift bench split`: regions and models divided over two engines, equal or not.

Every legal way to divide is measured in turns beside the same neighbours: the best of them is the
oracle. What policies choose from what they see is told as a share of that; how the runtime does by
itself, too. Then a neighbour comes and goes in the middle, and calls are counted until the shares
have followed. Whole models are set beside their peers, quiet and beside a neighbour.
"""

import os
import statistics
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import cache, partial
from random import Random
from tempfile import TemporaryDirectory
from time import perf_counter
from typing import Any

import numpy as np
import torch

from gearshift.bench.divided import Divided, block, divided, in_blocks, timed
from gearshift.bench.looks import EngineLooks, choice_of
from gearshift.bench.parts import Built, drawn, regions
from gearshift.bench.runtime import settings
from gearshift.bench.score import Slices, noise_over
from gearshift.bench.side_by_side import SidePace, neighbours_on, side_by_side
from gearshift.bench.split_score import (
    ITSELF,
    UNDIVIDED,
    best_s,
    case_of,
    stepped,
    summary_of,
)
from gearshift.bench.stage import LifePace, Turns, stage_of
from gearshift.busy import busy
from gearshift.capture.load import load
from gearshift.decide.keep import Keep
from gearshift.decide.learn.dqn import Dqn
from gearshift.decide.policies import MARGIN
from gearshift.decide.split.actions import FOLLOW, NAMES, NUM_ENGINES
from gearshift.decide.split.agent import ROLE, SHIPPED
from gearshift.decide.split.players import Bandit, Fixed, Greedy, Learned, Player, Share
from gearshift.decide.split.view import EngineView, SplitView
from gearshift.errors import GearshiftError
from gearshift.ir.roofline import Roofline
from gearshift.observe.hal import measure_roofline
from gearshift.runtime import adapt
from gearshift.sim.profiles import SHIPPED as PROFILES
from gearshift.sim.profiles import read_profiles
from gearshift.sim.split_training import divided as held_out

Say = Callable[[str], None]
Choices = Callable[[Divided, float], dict[str, str]]
"""For a region, and what one undisturbed engine takes, what each player settles on."""
BACKEND, OTHER = "onnxruntime", "openvino"
"""Players choose among the ways of the first; the oracle, among those of both."""
ENGINES = {"1:1": 0, "2:1": 1, "3:1": 2}
"""How many times as fast one engine is as the other, and how many neighbours on the core of the
slower one make it so."""
ALONE_CALLS = 10
FINALISTS, MORE = 5, 4
"""So many ways that seem best take so many times as many turns more: of many that were measured a
few times, the best would be one that was lucky."""
REGIONS = (
    *("matmul 512, 512 rows", "matmul 1024, 1024 rows"),
    *("matmul 2048, 512 rows", "matmul 4096, 256 rows"),
    *("resnet block 64x56x56, batch 1", "resnet block 512x7x7, batch 1"),
    "resnet block 128x28x28, batch 8",
    *("attention, batch 1", "attention, batch 8", "feed-forward, batch 8"),
)
"""Of each kind some; the agent never saw the matmul of 4096, the blocks of 512 and 128, nor the
feed-forward of 8."""
STEP = (0, 1, 0)
"""Neighbours, one phase after the other."""
POLICIES = ("share", "greedy", "dqn")
"""That decide in place of the default."""
SIDE = SidePace(
    life=LifePace(seconds=15.0, longer=2),
    beside=LifePace(seconds=25.0, longer=3),
    turns=Turns(rounds=8, min_calls=30, most=12, far=1.5),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Pace:
    rounds: int = 2
    """Turns of each way to divide, an even number."""
    batches: tuple[int, ...] = (1, 8)
    only: tuple[str, ...] = REGIONS
    """Regions by name."""
    serve_s: float = 6.0
    """How long the runtime serves by itself beside neighbours before it counts."""
    step_calls: int = 90
    """In each of the three phases of a step."""
    policy_s: float = 12.0
    """How long each policy serves in each situation before that."""
    models: tuple[str, ...] = ("resnet18@8", "mobilenet_v2@8", "minilm@8")
    """Through a step."""
    beside_peers: tuple[str, ...] = (*models, "resnet18", "mobilenet_v2")
    side: SidePace = SIDE

    def of(self, models: Sequence[str]) -> "Pace":
        """These models, and no region by itself."""
        some = tuple(models)
        return replace(self, only=(), models=some, beside_peers=some if self.beside_peers else ())


QUICK = Pace(
    rounds=2,
    only=("matmul 512, 512 rows", "resnet block 512x7x7, batch 1"),
    serve_s=3.0,
    step_calls=40,
    policy_s=3.0,
    models=("mobilenet_v2@8",),
    beside_peers=(),
)
"""One region by rows that the agent was trained on, and one by height that it was not."""


def measure(*, seed: int, cores: Sequence[int], pace: Pace, say: Say) -> dict[str, Any]:
    parts = regions(pace.batches)
    say("measuring the machine's roofline")
    choices = partial(_choices, seed, measure_roofline())
    draw = Random(seed)
    with _home_of_its_own():
        cases = [
            case
            for name in pace.only
            for case in _sound(
                {"region": name},
                partial(_region_cases, name, parts[name], choices, _slower(draw, cores), pace, say),
            )
        ]
        steps = [
            case
            for name in pace.models
            for case in _sound(
                {"model": name}, partial(_step_case, name, _slower(draw, cores), pace, say)
            )
        ]
    decision_s = _decision_s(_players(seed)[-1], _some_view())
    models = [
        case
        for name in pace.beside_peers
        for case in _sound(
            {"model": name}, partial(_beside_peers, name, _slower(draw, cores), cores, pace, say)
        )
    ]
    return {
        "seed": seed,
        **(noise_over(models) if models else {"noise": None, "void": False}),
        "cases": cases,
        "steps": steps,
        "models": models,
        "summary": summary_of(cases, steps, models),
        "decision_s": decision_s,
    }


def _sound(
    about: dict[str, str], measure_it: Callable[[], list[dict[str, Any]]]
) -> list[dict[str, Any]]:
    """What cannot be measured is told, and the rest is measured all the same."""
    try:
        return measure_it()
    except GearshiftError as error:
        return [{"case": about, "failed": str(error)}]


def _players(seed: int) -> list[Player]:
    """As they are while a model serves: the agent learns on."""
    random = np.random.default_rng(seed)
    agent = Dqn(ROLE.read(SHIPPED).network, ROLE.settings, random, ROLE.prior)
    learned = Learned(agent, learning=True, margin=MARGIN)
    return [Fixed(FOLLOW), Share(), Greedy(), Bandit(np.random.default_rng(seed)), learned]


def _choices(seed: int, roofline: Roofline, region: Divided, alone_s: float) -> dict[str, str]:
    """Nobody knows anything from regions before."""
    players = _players(seed)
    return {p.name: choice_of(p, EngineLooks(region, roofline, alone_s)) for p in players}


def _beside_peers(
    name: str, core: int, cores: Sequence[int], pace: Pace, say: Say
) -> list[dict[str, Any]]:
    with stage_of(name, say) as stage:
        stage.export()
        about = {"model": name, "neighbour": core}
        return side_by_side(stage, settings(len(cores)), about, core=core, pace=pace.side)


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


def _slower(draw: Random, cores: Sequence[int]) -> int:
    """The core that neighbours come to: of one engine or of the other."""
    return draw.choice(cores[:NUM_ENGINES])


def _region_cases(
    name: str, part: Callable[[], Built], choices: Choices, core: int, pace: Pace, say: Say
) -> list[dict[str, Any]]:
    model, args = drawn(part)
    found = []
    with (
        adapt(model, args, policy=Keep.name) as runtime,
        divided(name, runtime, args, backend=BACKEND, say=say) as region,
        divided(name, runtime, args, backend=OTHER, say=say) as other,
        adapt(model, args) as serving,
    ):
        if UNDIVIDED not in region.ready:
            raise GearshiftError(f"{name}: cannot be run undivided by {BACKEND}")
        alone_s = statistics.fmean(block(partial(region.call, UNDIVIDED), ALONE_CALLS))
        for engines, count in ENGINES.items():
            say(f"{name}: engines {engines}")
            with busy(neighbours_on(core, count)):
                _serve(serving, args, pace.serve_s)
                ways: dict[str, Callable[[], Any]] = {
                    **{action: partial(region.call, action) for action in region.ready},
                    **{by_other(action): partial(other.call, action) for action in other.ready},
                    ITSELF: partial(serving, *args),
                }
                chosen = choices(region, alone_s)
                slices = _in_turns(ways, pace.rounds, {ITSELF, *chosen.values()})
                unseen = name in _unseen()
                about = {"region": name, "engines": engines, "slower": core, "unseen": unseen}
                found.append(case_of(about, slices, chosen, serving.plan.summary))
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


def _in_turns(
    ways: Mapping[str, Callable[[], Any]], rounds: int, compared: Collection[str] = ()
) -> dict[str, Slices]:
    """All of them, then more often those that may be the best, of both backends and of the
    players', and those that are compared with them."""
    slices = in_blocks(ways, rounds)
    best = sorted(slices, key=lambda name: statistics.fmean(slices[name].calls()))
    players = [name for name in best if name in NAMES]
    finalists = {*best[:FINALISTS], *players[:FINALISTS], *compared}
    again = {name: call for name, call in ways.items() if name in finalists}
    for name, found in in_blocks(again, MORE * rounds).items():
        slices[name].call_s += found.call_s
    return slices


def _step_case(name: str, core: int, pace: Pace, say: Say) -> list[dict[str, Any]]:
    """Rows that follow by each backend, the runtime by itself once it knows both situations, and by
    other policies, while a neighbour comes and goes; against the best way under each."""
    model, args = load(name)
    only = [n for n in NAMES if n.startswith(("none", "rows"))]
    with (
        adapt(model, args, policy=Keep.name) as runtime,
        divided(name, runtime, args, backend=BACKEND, say=say, only=only) as whole,
        divided(name, runtime, args, backend=OTHER, say=say, only=only) as other,
        adapt(model, args) as serving,
    ):
        ways = {action: partial(whole.call, action) for action in whole.ready}
        ways |= {by_other(action): partial(other.call, action) for action in other.ready}
        if NAMES[FOLLOW] not in ways:
            raise GearshiftError(f"{name}: its rows cannot be divided, so that no share follows")
        oracles_s = []
        for count in (0, 1):
            say(f"{name}: every way, {count} neighbours")
            with busy(neighbours_on(core, count)):
                _serve(serving, args, pace.serve_s)
                oracles_s.append(best_s(_in_turns(ways, pace.rounds)))
        say(f"{name}: a neighbour comes and goes")
        following = (NAMES[FOLLOW], by_other(NAMES[FOLLOW]))
        calls = {way: ways[way] for way in following if way in ways}
        calls[ITSELF] = partial(serving, *args)
        took_s = {way: _stepped(call, core, pace) for way, call in calls.items()}
    took_s |= {policy: _by_policy(policy, name, core, pace, say) for policy in POLICIES}
    told = stepped(took_s, [oracles_s[count] for count in STEP])
    return [{"case": {"model": name, "trace": "step"}, **told}]


def _by_policy(policy: str, name: str, core: int, pace: Pace, say: Say) -> list[list[float]]:
    """Once it has served in both situations."""
    say(f"{name}: a neighbour comes and goes, policy {policy}")
    model, args = load(name)
    with adapt(model, args, policy=policy) as serving:
        for count in (0, 1):
            with busy(neighbours_on(core, count)):
                _serve(serving, args, pace.policy_s)
        with torch.no_grad():
            return _stepped(partial(serving, *args), core, pace)


def _stepped(call: Callable[[], Any], core: int, pace: Pace) -> list[list[float]]:
    """What calls took in each phase: all of them, the first one after a change, too."""
    call()
    phases = []
    for count in STEP:
        with busy(neighbours_on(core, count)):
            phases.append(timed(call, pace.step_calls))
    return phases


def _some_view() -> SplitView:
    estimates = dict.fromkeys(NAMES, 0.01)
    return SplitView(
        engines=(EngineView(others_share=0.1), EngineView(others_share=0.5)),
        speeds=(1.0, 0.5),
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
