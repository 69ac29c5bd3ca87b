"""`gearshift bench regions`: what it costs to become fast, how fast it gets, and what disturbs.

Beside peers that are fixed for the whole run and pay for their own export and compilation. Slices
of all take turns; what more calls than were run would take is carried on from the last third.
"""

import statistics
import tempfile
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from itertools import accumulate
from pathlib import Path
from typing import Any

from gearshift.bench.arena import Contender, Setting
from gearshift.bench.contender import BUILD, OTHER_SIZES, REST
from gearshift.bench.models import MODELS, SIZES
from gearshift.bench.score import PEERS, TWICE, mean_and_least

Say = Callable[[str], None]
CALLS = (100, 1_000, 10_000)
NEEDS_EXPORT = ("onnxruntime", "openvino")
ROLLING, NEAR = 10, 1.05
"""Over the median of so many calls, within so much of the last third's is as good as it gets."""
VOID_BEYOND = 0.05
RATIOS = (
    *("vs_eager", "vs_best_peer"),
    *(f"{ratio}_at_{n}" for ratio in ("vs_eager", "vs_best_peer") for n in CALLS),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Pace:
    rounds: int = 15
    slice_s: float = 1.0
    life_s: float = 2.0
    """Of Gearshift in each round: it has more to do than the others."""
    models: tuple[str, ...] = ("mlp", "resnet18", "mobilenet_v2", "minilm", *MODELS)
    shapes: tuple[str, ...] = tuple(SIZES)
    building: tuple[str, ...] = ("minilm", "resnet18")


QUICK = Pace(rounds=5, slice_s=0.5, models=("mlp",), shapes=("minilm",), building=("minilm",))


def measure(models: Sequence[str] | None, *, pace: Pace, say: Say) -> dict[str, Any]:
    cases = [_case(model, pace, say) for model in models or pace.models]
    shapes = [_shapes(model, pace, say) for model in pace.shapes]
    builds = [_builds(model, pace, say) for model in pace.building]
    noise = statistics.geometric_mean(case["twice"] for case in cases)
    return {
        "noise": noise,
        "void": abs(noise - 1) > VOID_BEYOND,
        "cases": cases,
        "shapes": shapes,
        "builds": builds,
        "summary": {"quiet": {ratio: mean_and_least(cases, ratio) for ratio in RATIOS}},
    }


@dataclass(slots=True)
class _Calls:
    """Of one contender, in order."""

    ready_s: float
    call_s: list[float]

    @property
    def steady_s(self) -> float:
        """The mean of the last third."""
        last = self.call_s[-max(1, len(self.call_s) // 3) :]
        return statistics.fmean(last)

    def until_s(self, num_calls: int) -> float:
        """From the model as it is to the end of so many calls."""
        sums = list(accumulate(self.call_s[:num_calls]))
        missing = num_calls - len(sums)
        return self.ready_s + (sums[-1] if sums else 0.0) + max(0, missing) * self.steady_s


def _case(model: str, pace: Pace, say: Say) -> dict[str, Any]:
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="gearshift-")))
        open_ = _opener(model, folder, stack)
        say(f"{model}: the export")
        export_s = open_(Setting(kind="export")).ready_s
        everybody = {}
        for name in (*PEERS, TWICE):
            say(f"{model}: {name} gets ready")
            kind = "onnxruntime" if name == TWICE else name
            everybody[name] = open_(Setting(kind=kind))
        say(f"{model}: gearshift gets ready")
        gearshift = open_(Setting(kind="gearshift", warm_up=0))
        calls = {
            name: _Calls(c.ready_s + (export_s if name in NEEDS_EXPORT else 0.0), [])
            for name, c in everybody.items()
        }
        ours, answers = _Calls(gearshift.ready_s, []), []
        for number in range(pace.rounds):
            say(f"{model}: round {number + 1} of {pace.rounds}")
            answers.append(gearshift.run(pace.life_s))
            ours.call_s += answers[-1]["call_s"]
            for name, contender in everybody.items():
                calls[name].call_s += contender.run(pace.slice_s)["call_s"]
    return _told(model, ours, calls, answers)


def _opener(model: str, folder: Path, stack: ExitStack) -> Callable[[Setting], Contender]:
    def opened(setting: Setting) -> Contender:
        contender = Contender(model, setting, folder, folder / "home")
        stack.callback(contender.close)
        contender.arrive()
        contender.open()
        return contender

    return opened


def _told(
    model: str,
    ours: _Calls,
    calls: Mapping[str, _Calls],
    answers: Sequence[Mapping[str, Any]],
) -> dict[str, Any]:
    steady_s = {name: calls[name].steady_s for name in PEERS}
    best = min(steady_s, key=lambda name: steady_s[name])
    until_s = {
        n: {"gearshift": ours.until_s(n), **{name: calls[name].until_s(n) for name in PEERS}}
        for n in CALLS
    }
    soonest_s = {n: min(found[name] for name in PEERS) for n, found in until_s.items()}
    return {
        "case": {"model": model, "trace": "quiet"},
        "gearshift_s": ours.steady_s,
        "peers_s": steady_s,
        "best_peer": best,
        "vs_eager": steady_s["eager"] / ours.steady_s,
        "vs_best_peer": steady_s[best] / ours.steady_s,
        "ready_s": {"gearshift": ours.ready_s, **{name: calls[name].ready_s for name in PEERS}},
        "until_s": until_s,
        **{f"vs_eager_at_{n}": f["eager"] / f["gearshift"] for n, f in until_s.items()},
        **{f"vs_best_peer_at_{n}": soonest_s[n] / f["gearshift"] for n, f in until_s.items()},
        "twice": calls["onnxruntime"].steady_s / calls[TWICE].steady_s,
        "max_error": max(answer["max_error"] for answer in answers),
        "plan": answers[-1]["plans"][-1] if answers[-1]["plans"] else "",
        "decisions": answers[-1]["decisions"],
    }


def _shapes(model: str, pace: Pace, say: Say) -> dict[str, Any]:
    """Half-way the inputs are of another size."""
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="gearshift-")))
        open_ = _opener(model, folder, stack)
        say(f"{model}: shapes change")
        both = {
            kind: open_(Setting(kind=kind, sizes=True, warm_up=0))
            for kind in ("eager", "gearshift")
        }
        for contender in both.values():
            contender.run(pace.rounds * pace.life_s / 2)
        for contender in both.values():
            contender.become(OTHER_SIZES)
        ours, eager = _Calls(0.0, []), _Calls(0.0, [])
        for _ in range(pace.rounds):
            ours.call_s += both["gearshift"].run(pace.life_s)["call_s"]
            eager.call_s += both["eager"].run(pace.slice_s)["call_s"]
    return {
        "case": {"model": model},
        "gearshift_s": ours.steady_s,
        "eager_s": eager.steady_s,
        "calls_until_near": _until_near(ours.call_s, ours.steady_s),
        "worst_call_vs_eager": max(ours.call_s) / statistics.median(eager.call_s),
        "eager_worst": max(eager.call_s) / statistics.median(eager.call_s),
    }


def _until_near(call_s: Sequence[float], steady_s: float) -> int | None:
    """After how many calls the rolling median was near what it is in the end; None: never."""
    for index in range(max(1, len(call_s) - ROLLING)):
        if statistics.median(call_s[index : index + ROLLING]) <= NEAR * steady_s:
            return index
    return None


def _builds(model: str, pace: Pace, say: Say) -> dict[str, Any]:
    """Slices with builds in the background and without, in turns."""
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="gearshift-")))
        say(f"{model}: builds in the background")
        contender = _opener(model, folder, stack)(Setting(kind="building"))
        call_s: dict[str, list[float]] = {BUILD: [], REST: []}
        for _ in range(pace.rounds):
            for word, found in call_s.items():
                contender.become(word)
                found += contender.run(pace.life_s)["call_s"]
    p95_s = {word: statistics.quantiles(found, n=20)[-1] for word, found in call_s.items()}
    return {
        "case": {"model": model},
        "p95_s": p95_s[REST],
        "p95_while_building_s": p95_s[BUILD],
        "p95_ratio": p95_s[BUILD] / p95_s[REST],
        "mean_ratio": statistics.fmean(call_s[BUILD]) / statistics.fmean(call_s[REST]),
    }
