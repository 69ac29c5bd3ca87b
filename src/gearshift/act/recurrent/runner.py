"""Some layers of a stack on one engine: a call through all of them, one after the other or chunk
by chunk as another engine hands them over.

On the hot path. Must not know engines; whoever runs it is on one.
"""

from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from time import perf_counter

from gearshift.act.recurrent.course import Course, Last, Layer
from gearshift.act.recurrent.kernels import Kernel
from gearshift.plan.unroll import Steps

MAX_KEPT = 4096
Leave = Callable[[], bool]
"""Asked before every chunk: whether another way is to go on from here."""


@dataclass(frozen=True, slots=True)
class Profile:
    """The settings for some layers: for each its steps, and a kernel per direction."""

    layers: tuple[tuple[Steps, tuple[Kernel, ...]], ...]
    way: object = None
    """Alike for all engines of a team."""


@dataclass(frozen=True, slots=True)
class Chunk:
    """What was done, for who watches."""

    layer: int
    begin_s: float
    end_s: float
    at: int
    """The first of its steps."""
    num_steps: int
    num_rows: int
    steps: Steps
    switch_s: float | None = None
    """If it went on where another setting or other engines had left off: how long that took."""


class Runner:
    """Some layers in a row."""

    __slots__ = ("layers", "profile", "seen")

    def __init__(self, profile: Profile, layers: range) -> None:
        self.profile, self.layers = profile, layers
        self.seen: deque[Chunk] = deque(maxlen=MAX_KEPT)

    @property
    def threads(self) -> list[int]:
        """That its kernels have of their own."""
        kernels = [kernel for _, some in self.profile.layers for kernel in some]
        return [number for kernel in kernels for number in getattr(kernel, "threads", ())]

    def through(self, course: Course, leave: Leave) -> None:
        """All layers, one after the other, as far as it may."""
        for part in course.parts:
            for number in range(part.num_layers):
                layer = part.layer(number)
                for direction in range(layer.num_directions):
                    if not self.finish(layer, number, direction, leave):
                        return

    def finish(self, layer: Layer, number: int, direction: int, leave: Leave) -> bool:
        """One direction of a layer; False if it is left before its end."""
        walk = layer.walk(direction)
        while not walk.done:
            if leave():
                return False
            self.go(layer, number, direction, walk.num_steps)
        return True

    def go(self, layer: Layer, number: int, direction: int, reached: int) -> None:
        """A chunk, if its input has come so far."""
        walk, (steps, kernels), way = (
            layer.walk(direction),
            self.profile.layers[number],
            self.profile.way,
        )
        begin_s, at, num_rows = perf_counter(), walk.at, walk.num_rows
        if walk.go(steps, kernels[direction], reached):
            last, end_s = layer.last, perf_counter()
            switch_s = None if last.by in (None, way) else begin_s - last.end_s
            layer.last = Last(way, end_s)
            about = (begin_s, end_s, at, walk.at - at, num_rows, steps, switch_s)
            self.seen.append(Chunk(number, *about))
            if walk.done:
                layer.end(direction)

    def flow(
        self,
        layers: Sequence[Layer],
        come: Callable[[], int | None],
        tell: Callable[[int], None],
        leave: Leave,
    ) -> None:
        """Layers of one direction, each going as far as the one before it has come: `come` waits
        and says how far the first may go, or that nothing more will come; `tell` says how far the
        last has come."""
        walks = [layers[number].walk(0) for number in self.layers]
        tell(walks[-1].at)
        ready = 0
        while not walks[-1].done and not leave():
            while ready < walks[0].next_end(self.profile.layers[self.layers[0]][0]):
                so_far = come()
                if so_far is None:
                    return
                ready = so_far
            for place, number in enumerate(self.layers):
                if not walks[place].done:
                    reached = ready if place == 0 else walks[place - 1].at
                    self.go(layers[number], number, 0, reached)
            tell(walks[-1].at)
