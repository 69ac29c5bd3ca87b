"""One model beside its peers, on a quiet machine and beside a neighbour on one core.

Gearshift lives for a while, then all take turns. Must not know what the model is.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from gearshift.bench.arena import Setting
from gearshift.bench.score import OURS
from gearshift.bench.side_score import case_of
from gearshift.bench.stage import LifePace, Stage, Turns, in_turns, lived
from gearshift.busy import Neighbour, busy

QUIET, NEIGHBOUR = "quiet", "neighbour"
ADAPTING = Setting(kind=OURS, warm_up=0)


@dataclass(frozen=True, slots=True, kw_only=True)
class SidePace:
    life: LifePace
    """Of Gearshift on a quiet machine, before it counts,"""
    beside: LifePace
    """and beside a neighbour."""
    turns: Turns


def side_by_side(
    stage: Stage,
    peers: Mapping[str, Setting],
    about: Mapping[str, Any],
    *,
    core: int,
    pace: SidePace,
) -> list[dict[str, Any]]:
    """A case for each of the two. A peer that fails is left out, except eager."""
    wanted = {**peers, OURS: ADAPTING}
    contenders = stage.open(wanted, may_fail=wanted.keys() - {"eager", OURS})
    found = []
    for trace, neighbours in ((QUIET, ()), (NEIGHBOUR, neighbours_on(core))):
        with busy(neighbours):
            stage.say(f"{stage.model}: gearshift lives, {trace}")
            lived(contenders[OURS], pace.beside if neighbours else pace.life)
            answers = in_turns(stage, contenders, pace.turns)
        case, measured = {**about, "batch": stage.batch, "trace": trace}, case_of(answers)
        last = answers[OURS][-1]
        told = {"plan": last["plans"][-1], "decisions": last["decisions"]}
        told["peers_failed"] = stage.failed
        ratio = measured["vs_best_static"]
        stage.say(f"{stage.model}: {trace}, {ratio:.2f} times as fast as the best static setting")
        found.append({"case": case, **measured, **told})
    return found


def neighbours_on(core: int, count: int = 1) -> tuple[Neighbour, ...]:
    return (Neighbour(kind="arithmetic", core=core),) * count
