"""Records what the rewrite world is made of: regions of real models, by every entry of the library
that is legal for them.

Must not know the simulator's rules; it writes what was measured.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import partial
from time import perf_counter

from gearshift.act.labels import size_number
from gearshift.bench.models import MODELS
from gearshift.capture.load import load
from gearshift.decide.keep import Keep
from gearshift.errors import GearshiftError
from gearshift.ir.pieces import Piece, pieces_of
from gearshift.ir.roofline import Roofline
from gearshift.ir.work import Work
from gearshift.observe.hal import measure_roofline
from gearshift.plan.library import LIBRARY, Build, Entry
from gearshift.plan.plan import Plan, Region
from gearshift.predict.roofline import compute_s, memory_s
from gearshift.profile import profile_regions
from gearshift.runtime import Runtime, adapt
from gearshift.sim.rewrite_profiles import PLAIN, RegionProfile

Say = Callable[[str], None]
BUILT_IN = (
    *("resnet18", "resnet18@8", "minilm", "minilm@8", "unet"),
    *("mobilenet_v2", "mobilenet_v2@8", "mlp", "mlp@8", "lstm_tagger", "two_tower"),
)
MINUTES = 25.0
SECONDS = 0.1
"""For each region and entry."""
DEPTH = 3
"""Levels of the hierarchy below the whole model."""
MAX_SLOW, SLOW_OPS = 1, 20
"""So many regions of a model, of different kinds and of no more ops, are measured by what is slow
to build, too: a build takes up to half a minute."""


def record(say: Say, minutes: float = MINUTES) -> Iterator[RegionProfile]:
    """Coarse regions first, until the time is up, which the models share alike. What is the same in
    two models is the first one's only."""
    say("measuring the machine's roofline")
    roofline, seen = measure_roofline(), set[tuple[str, Work]]()
    end_s = perf_counter() + 60 * minutes
    models = (*BUILT_IN, *MODELS)
    for number, model in enumerate(models):
        now_s = perf_counter()
        until_s = now_s + (end_s - now_s) / (len(models) - number)
        try:
            yield from _of_model(model, roofline, seen, until_s, say)
        except GearshiftError as refusal:
            say(f"{model} is left out: {refusal}")


def _of_model(
    model: str, roofline: Roofline, seen: set[tuple[str, Work]], until_s: float, say: Say
) -> Iterator[RegionProfile]:
    name = model.rpartition(":")[-1]
    say(f"{name}: loading and capturing")
    with adapt(*load(model), policy=Keep.name) as runtime:
        recorder = _Recorder(name, runtime, roofline)
        pieces = recorder.pieces()
        for number, piece in enumerate(pieces, 1):
            if perf_counter() > until_s:
                say(f"{name}: no time for {len(pieces) - number + 1} of {len(pieces)} regions")
                return
            if (piece.identity, piece.work) in seen or not piece.work.known:
                continue
            seen.add((piece.identity, piece.work))
            say(f"{name}: {piece.name}, region {number} of {len(pieces)}")
            profile = recorder.profile(piece)
            if profile is not None:
                yield profile


@dataclass(slots=True)
class _Recorder:
    """Of one model."""

    name: str
    runtime: Runtime
    roofline: Roofline
    slow: set[str] = field(default_factory=set)
    """Kinds of the regions that were measured by what is slow to build."""

    def pieces(self) -> list[Piece]:
        """Level by level; none of a model that is not captured whole, or of unknown sizes."""
        whole = self.runtime.program.by_name.get("")
        if whole is None:
            return []
        size = partial(size_number, bound=whole.sizes.bind(whole.example))
        try:
            root = pieces_of(whole.graph, size, self.runtime.space.runnable, DEPTH)
        except ValueError:  # a size that is not known before the call
            return []
        found: list[Piece] = []
        level = [] if root is None else [root]
        while level:
            found += level
            level = [child for piece in level for child in piece.children]
        return found

    def profile(self, piece: Piece) -> RegionProfile | None:
        """None if it cannot even run as it comes."""
        threads = self.runtime.space.usable_cores
        rewrites = {entry.name: entry.rewrite(threads) for entry in self._entries(piece)}
        names = {str(rewrite): name for name, rewrite in rewrites.items()}
        rows = {
            names[row.rewrite]: row
            for row in profile_regions(
                self.runtime,
                Plan(regions=(Region(ops=piece.ops),)),
                list(rewrites.values()),
                seconds=SECONDS,
                progress=_in_silence,
            )
        }
        if PLAIN not in rows:
            return None
        return RegionProfile(
            model=self.name.partition("@")[0],
            name=f"{self.name} {piece.name}",
            kind=piece.kind,
            num_ops=len(piece.ops),
            flops=piece.work.flops,
            moved_bytes=piece.work.moved_bytes,
            set_bytes=piece.work.set_bytes,
            read_bytes=float(piece.read_bytes),
            made_bytes=float(piece.made_bytes),
            compute_s=compute_s(piece.work, self.roofline, threads),
            memory_s=memory_s(piece.work, self.roofline),
            seconds={name: row.latency_s for name, row in rows.items()},
            build_s={name: row.build_s for name, row in rows.items()},
        )

    def _entries(self, piece: Piece) -> list[Entry]:
        fitting = [entry for entry in LIBRARY if entry.backend in piece.backends]
        few = len(self.slow) < MAX_SLOW and len(piece.ops) <= SLOW_OPS
        if few and piece.kind not in self.slow:
            self.slow.add(piece.kind)
            return fitting
        return [entry for entry in fitting if entry.build is not Build.SLOW]


def _in_silence(text: str) -> None:
    """Each region is told of before."""
