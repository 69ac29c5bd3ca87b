"""`gearshift bench runtime`: the adapting runtime beside its peers, while neighbours come and go.

Static settings are measured in slices around each of Gearshift's stretches and composed into the
trace; Gearshift lives through it for real, once from nothing and once with what it learned.
"""

import statistics
import tempfile
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from gearshift.bench.arena import Contender, Setting
from gearshift.bench.neighbours import Neighbour, busy
from gearshift.bench.score import PEERS, TWICE, Slices, Stretch, case_of, noise_of, summary_of
from gearshift.bench.traces import Phase, traces

Say = Callable[[str], None]
Condition = tuple[Neighbour, ...]
VOID_BEYOND = 0.05


@dataclass(frozen=True, slots=True, kw_only=True)
class Pace:
    phase_s: float = 7.0
    slice_s: float = 0.6
    changes: int = 5


QUICK = Pace(phase_s=5.0, slice_s=0.35, changes=3)


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
    models: Sequence[str], *, seed: int, num_cores: int, pace: Pace, say: Say
) -> dict[str, Any]:
    cases: list[dict[str, Any]] = []
    doubles: list[float] = []
    trace = traces(seed, num_cores, pace.phase_s, pace.changes)
    for model in models:
        with ExitStack() as stack:
            folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="gearshift-")))
            arena = _Arena(model, folder, num_cores, pace, stack, say)
            measured = {start: arena.live_through(trace, start) for start in ("cold", "warm")}
        for start, stretches in measured.items():
            for name, phases in trace.items():
                case = case_of(
                    phases, stretches[name], [arena.slices[p.neighbours] for p in phases]
                )
                about = {"model": model, "trace": name, "start": start}
                cases.append({"case": about, **case, "ready_s": arena.ready_s})
        doubles += map(noise_of, arena.slices.values())
    noise = statistics.geometric_mean(doubles)
    return {
        "seed": seed,
        "noise": noise,
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
        self.slices: dict[Condition, dict[str, Slices]] = {}
        self.static: dict[str, Contender] = {}
        self._turn = 0
        say(f"{model}: exporting")
        with ExitStack() as exporting:
            self.ready_s = {"export": self._start(Setting(kind="export"), exporting).ready_s}
        for name, setting in settings(num_cores).items():
            say(f"{model}: starting {name}")
            self.static[name] = self._start(setting, stack)
            self.ready_s[name] = self.static[name].ready_s

    def live_through(
        self, trace: Mapping[str, Sequence[Phase]], start: str
    ) -> dict[str, list[Stretch]]:
        self.say(f"{self.model}: starting gearshift, {start}")
        with ExitStack() as mine:
            gearshift = self._start(Setting(kind="gearshift", warm_up=0), mine)
            self.ready_s[f"gearshift, {start}"] = gearshift.ready_s
            return {
                name: [self._phase(gearshift, name, start, phase) for phase in phases]
                for name, phases in trace.items()
            }

    def _phase(self, gearshift: Contender, name: str, start: str, phase: Phase) -> Stretch:
        others = " and ".join(map(str, phase.neighbours)) or "nobody else"
        self.say(f"{self.model}: {name}, {start}, {others}")
        with busy(phase.neighbours):
            self._take_slices(phase.neighbours)
            answer = gearshift.run(phase.seconds)
            if phase.neighbours and start == "warm":
                self._take_slices(phase.neighbours)
        return Stretch(**answer)

    def _take_slices(self, condition: Condition) -> None:
        """One of each, in rotating order."""
        slices = self.slices.setdefault(condition, {name: Slices() for name in self.static})
        names = list(self.static)
        self._turn = (self._turn + 1) % len(names)
        for name in names[self._turn :] + names[: self._turn]:
            slices[name].add(self.static[name].run(self.pace.slice_s))

    def _start(self, setting: Setting, stack: ExitStack) -> Contender:
        contender = Contender(self.model, setting, self.folder)
        stack.callback(contender.close)
        return contender
