"""The data plane as the loop sees it: what it may look at, and how far it may move it.

Must not know who moves it, or why.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from gearshift.decide.policy import Proposal
from gearshift.ir.measurement import Measurement
from gearshift.ir.snapshot import LayerSeen
from gearshift.observe.sampler import Timed
from gearshift.plan.plan import Plan


@dataclass(frozen=True, slots=True)
class Refusal:
    """Why something asked for was not done; `lasting` if asking again would not help."""

    why: str
    lasting: bool


Done = Callable[[Refusal | None], None]


class Gone(Exception):
    """There is nothing left to adapt."""


class Hands(Protocol):
    """The data plane, as far as the loop may move it. Nothing here takes long: what does is done
    elsewhere, and `done` hears when, and what went wrong."""

    @property
    def in_force(self) -> str: ...

    @property
    def trial(self) -> str | None: ...

    @property
    def spent_s(self) -> float:
        """What the trial under way has cost beyond the usual."""

    @property
    def by_hand(self) -> bool:
        """Whether the plan in force was asked for by the user: then it stays."""

    @property
    def served(self) -> tuple[int, float]:
        """How many calls there were so far, and the time in them."""

    @property
    def held_bytes(self) -> int: ...

    @property
    def ready(self) -> Sequence[str]:
        """Plans that could serve at once, by fingerprint."""

    @property
    def disturbed(self) -> bool:
        """Whether other work of ours ran beside the calls since this was last asked."""

    @property
    def threads(self) -> Mapping[str, int]:
        """Engines with a thread of their own, by name, and the system's number of it."""

    def note_neighbours(self, count: int, spare_core: int | None) -> None:
        """So many there are now: who can makes room for them. On the spare core, if there is one,
        they hardly run: it is left to the calling thread."""

    def timings(self) -> Iterable[tuple[str, Timed]]: ...

    def why_illegal(self, plan: Plan) -> str | None: ...

    def adopt(self, proposal: Proposal, done: Done) -> None: ...

    def begin_trial(self, proposal: Proposal, credit_s: float, done: Done) -> None:
        """It may cost so much beyond the usual."""

    def end_trial(self, *, keep_new: bool, why: str, gain: float | None) -> float:
        """Seconds it cost beyond the usual."""

    def stand_by(self, proposal: Proposal, done: Done) -> None: ...

    def make_ready(self, plan: Plan, reason: str, *, keep: Plan) -> Refusal | None:
        """On this thread, before the first call. What is to be kept goes last if there is too
        little room for all."""

    def play(self, plan: Plan, seconds: float, least: int, between: Callable[[], object]) -> None:
        """The example on a plan that is ready, for so long and at least so often; `timings` tells
        what it took. A plan that fails is not ready any more."""

    def measure(self, proposal: Proposal, done: Done) -> None:
        """Times each region by itself; `take_measured` tells what came of it."""

    def take_measured(self) -> tuple[Measurement, ...]:
        """Since this was last asked."""

    def take_layers(self) -> tuple[LayerSeen, ...]:
        """What recurrent layers did in the calls that `timings` told of, if all were of the plan in
        force."""

    def amend(self, plan: str, measured_gain: float) -> None:
        """What the last change to this plan brought, once it is known."""
