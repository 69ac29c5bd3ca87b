"""`gearshift bench runtime`: the adapting runtime beside its peers, while neighbours come and go.

Gearshift lives through each trace for real, once from nothing and once with what it learned. In the
second life it is stopped twice in each phase, and the static settings take their slices beside the
same neighbours; those are composed into the trace. What is compared was so measured in the same
minute; the first life is compared with the slices of the second.
"""

import statistics
import tempfile
from bisect import bisect_left
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from time import perf_counter, sleep
from typing import Any

from gearshift.bench.arena import Contender, Setting
from gearshift.bench.score import (
    PEERS,
    TWICE,
    VOID_BEYOND,
    Lived,
    Slices,
    Stretch,
    case_of,
    in_the_running,
    noise_of,
    summary_of,
)
from gearshift.bench.traces import Phase, traces
from gearshift.busy import Neighbour, busy

Say = Callable[[str], None]
Condition = tuple[Neighbour, ...]
STARTS = ("cold", "warm")


@dataclass(frozen=True, slots=True, kw_only=True)
class Pace:
    phase_s: float = 6.0
    slice_s: float = 1.0
    """Shorter ones are faster: a process that was stopped comes back to a rested machine."""
    stops: int = 2
    """In each phase of the second life, for a slice of each static setting: the best is chosen on
    one half of them and told on the other."""
    one_phase_stops: int = 6
    """The same where there is only one phase, so that a bad moment of a second decides less."""
    changes: int = 5
    traces: tuple[str, ...] = ("quiet", "neighbour", "changing")


QUICK = Pace(phase_s=2.0, slice_s=0.15, changes=3, traces=("quiet", "changing"))
GEARSHIFT = Setting(kind="gearshift", warm_up=0)


def settings(num_cores: int) -> dict[str, Setting]:
    """The peers as they come (ONNX Runtime spins, on all cores), and every other static setting."""
    others = {
        f"{kind} x1": Setting(kind=kind, threads=1)
        for kind in ("eager", "torch.compile", "onnxruntime", "openvino")
    }
    still = f"onnxruntime x{num_cores} still"
    others[still] = Setting(kind="onnxruntime", threads=num_cores, spin=False)
    peers = {name: Setting(kind=name) for name in PEERS}
    return {**peers, **others, TWICE: Setting(kind="onnxruntime")}


def measure(
    models: Sequence[str],
    *,
    seed: int,
    cores: Sequence[int],
    pace: Pace,
    say: Say,
) -> dict[str, Any]:
    drawn = traces(seed, cores, pace.phase_s, pace.changes)
    trace = {name: phases for name, phases in drawn.items() if name in pace.traces}
    cases: list[dict[str, Any]] = []
    doubles: list[float] = []
    for model in models:
        with ExitStack() as stack:
            folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="gearshift-")))
            arena = _Arena(model, folder, len(cores), pace, stack, say)
            lived = {name: arena.live_through(name, phases) for name, phases in trace.items()}
        for name, phases in trace.items():
            theirs = [arena.slices[name, phase.neighbours] for phase in phases]
            for start, other in (STARTS, STARTS[::-1]):
                about = {"model": model, "batch": arena.batch, "trace": name, "start": start}
                elsewhere = lived[name][other]
                case = case_of(phases, lived[name][start], theirs, elsewhere=elsewhere)
                cases.append({"case": about, **case, "ready_s": arena.ready_s})
        doubles += map(noise_of, arena.slices.values())
    noise = statistics.geometric_mean(doubles)
    return {
        "seed": seed,
        "noise": noise,
        "noise_of_a_case": statistics.geometric_mean(max(r, 1 / r) for r in doubles),
        "noise_at_most": max(max(ratio, 1 / ratio) for ratio in doubles),
        "void": abs(noise - 1) > VOID_BEYOND,
        "cases": cases,
        "summary": summary_of(cases),
    }


class _Arena:
    """One model: its contenders, and what the static ones took under each condition."""

    def __init__(
        self, model: str, folder: Path, num_cores: int, pace: Pace, stack: ExitStack, say: Say
    ) -> None:
        self.model, self.folder, self.pace, self.say = model, folder, pace, say
        self.slices: dict[tuple[str, Condition], dict[str, Slices]] = {}
        self.static: dict[str, Contender] = {}
        self._turn = 0
        everybody = {"the export": self._make(stack, Setting(kind="export"))}
        for name, setting in settings(num_cores).items():
            self.static[name] = everybody[name] = self._make(stack, setting)
        self.lives = {
            (trace, start): self._make(stack, GEARSHIFT, folder / trace)
            for trace in pace.traces
            for start in STARTS
        }
        say(f"{model}: loading libraries")
        for contender in (*everybody.values(), *self.lives.values()):
            contender.arrive()
        for name, contender in everybody.items():
            say(f"{model}: starting {name}")
            contender.open()
        everybody["the export"].close()
        self.ready_s = {name: contender.ready_s for name, contender in everybody.items()}
        self.batch = everybody["the export"].batch

    def _make(self, stack: ExitStack, setting: Setting, home: Path | None = None) -> Contender:
        contender = Contender(self.model, setting, self.folder, home)
        stack.callback(contender.close)
        return contender

    def live_through(self, name: str, phases: Sequence[Phase]) -> dict[str, Lived]:
        """From nothing, and again with what was learned."""
        lived = {}
        for start in STARTS:
            self.say(f"{self.model}: {name}, {start}")
            stops = self.pace.one_phase_stops if len(phases) == 1 else self.pace.stops
            lived[start] = self._run(name, start, phases, stops if start == STARTS[-1] else 0)
        return lived

    def _run(self, name: str, start: str, phases: Sequence[Phase], stops: int) -> Lived:
        """One process lives through the whole trace, with stops; neighbours come and go while it
        runs."""
        gearshift = self.lives[name, start]
        answers: list[dict[str, Any]] = []
        ends_s: list[float] = []
        parts = [phase.seconds / (stops + 1) for phase in phases]
        try:
            for index, phase in enumerate(phases):
                with busy(phase.neighbours):
                    if index == 0:
                        gearshift.open()
                        self.ready_s[f"gearshift, {name}, {start}"] = gearshift.ready_s
                        gearshift.begin(parts[0] if stops else sum(parts))
                    for stop in range(stops):
                        answers.append(gearshift.end())
                        self._take_slices(name, phase.neighbours)
                        is_last = stop + 1 == stops
                        beyond = parts[index + 1 : index + 2] if is_last else []
                        gearshift.begin(parts[index] + sum(beyond))
                    sleep(parts[index])
                    ends_s.append(perf_counter())
            answers.append(gearshift.end())
        finally:
            gearshift.close()
        return Lived(
            phases=_by_phase(answers, ends_s),
            cpu_s=sum(answer["cpu_s"] for answer in answers),
            max_error=max(answer["max_error"] for answer in answers),
            decisions=answers[-1]["decisions"],
        )

    def _take_slices(self, trace: str, condition: Condition) -> None:
        """One of each that may be the best, in rotating order."""
        fresh = {name: Slices() for name in self.static}
        slices = self.slices.setdefault((trace, condition), fresh)
        names = in_the_running(slices)
        self._turn = (self._turn + 1) % len(names)
        others = " and ".join(map(str, condition)) or "nobody else"
        self.say(f"{self.model}: static settings, {others}")
        for name in names[self._turn :] + names[: self._turn]:
            slices[name].add(self.static[name].run(self.pace.slice_s))


def _by_phase(answers: Iterable[Mapping[str, Any]], ends_s: Sequence[float]) -> list[Stretch]:
    """Calls filed under the phase they began in; the clock is the same for all processes."""
    stretches = [Stretch() for _ in ends_s]
    for answer in answers:
        calls = zip(answer["at_s"], answer["call_s"], answer["plans"], strict=True)
        for at_s, call_s, plan in calls:
            index = min(bisect_left(ends_s, at_s), len(ends_s) - 1)
            stretches[index].call_s.append(call_s)
            stretches[index].plans.append(plan)
    return stretches
