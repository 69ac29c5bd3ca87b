"""A machine and a model made of numbers: plans that take so long beside so many neighbours."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field

from gearshift.act.turns import BLOCK
from gearshift.decide.bandit import Bandit
from gearshift.decide.control import Control, InProcess
from gearshift.decide.guard import Guard, Limits
from gearshift.decide.messages import Answer
from gearshift.decide.mind import Mind
from gearshift.decide.policy import Options, Outcome, Policy, Proposal
from gearshift.decide.reward import Costs
from gearshift.hands import Done, Refusal
from gearshift.ir.measurement import Measurement, Metric, Source
from gearshift.ir.roofline import Roofline
from gearshift.ir.snapshot import LayerSeen, Snapshot
from gearshift.ir.work import Work
from gearshift.loop import Loop
from gearshift.observe.sampler import ENERGY, OTHERS, Sampler
from gearshift.observe.store import Store, memory_store
from gearshift.plan import Objective, Plan, Region, Rewrite
from gearshift.predict.table import Table

CORES = 2
BUILD_S = 0.5
WORK = Work(flops=1e9, moved_bytes=2e7, set_bytes=1e7)
KEY = {"machine": "m", "versions": "v", "graph": "g"}
EAGER = Plan(regions=(Region(ops=("a",)),))
TWO = Plan(regions=(Region(ops=("a",), rewrite=Rewrite(backend="onnxruntime", threads=2)),))
ONE = Plan(regions=(Region(ops=("a",), rewrite=Rewrite(backend="onnxruntime", threads=1)),))
PLANS = {plan.fingerprint: plan for plan in (EAGER, TWO, ONE)}
TIMES = {
    (EAGER, 0): 0.040,
    (TWO, 0): 0.020,
    (ONE, 0): 0.035,
    (EAGER, 1): 0.160,
    (TWO, 1): 0.060,
    (ONE, 1): 0.036,
}
"""Seconds of a call: what is best beside a neighbour is not what is best without."""


@dataclass(frozen=True)
class Label:
    signature: str
    work: Work | None = None


@dataclass(frozen=True)
class Call:
    label: Label
    at_s: float
    call_s: float
    region_s: Mapping[str, float] = field(default_factory=dict)
    parts: Mapping[str, Mapping[str, tuple[float, float]]] = field(default_factory=dict)


class World:
    """Hands, counters and clock in one; `live` lets calls flow and the loop tick."""

    def __init__(self, times: dict[tuple[Plan, int], float] | None = None) -> None:
        self.now_s, self.energy_j = 1000.0, 0.0
        self.neighbours = 0
        self.crowd: tuple[int, int | None] = (0, None)
        """How many neighbours, and the core they leave alone, as the loop last told."""
        self.times = times or TIMES
        self.plan, self.newcomer = EAGER, None
        self.spent_s = self.credit_s = 0.0
        self.by_hand = False
        self.held_bytes = 0
        self.ready = list(PLANS)
        self.disturbed = False
        self.threads: dict[str, int] = {}
        self.turn = 0
        self.signatures = ["x"]
        """In turns."""
        self.tried: list[Plan] = []
        self.pending: list[tuple[str, Call]] = []
        self.served = (0, 0.0)
        self.calls: list[tuple[float, Plan, float]] = []
        self.switches: list[tuple[float, Plan]] = []
        self.gains: list[tuple[str, float]] = []
        self.noted: list[Work] = []
        self.refuses: dict[Plan, Refusal] = {}
        """What cannot be made ready, and why."""
        self.asked: list[tuple[float, Plan]] = []
        self.made_ready: list[Plan] = []
        self.mute: set[Plan] = set()
        """Plans whose calls leave no times."""
        self.roofline: Roofline | None = None

    def live(self, loop: Loop, seconds: float) -> None:
        end_s = self.now_s + seconds
        tick_s = self.now_s + 0.1
        while self.now_s < end_s:
            self.call()
            if self.now_s >= tick_s:
                loop.tick()
                tick_s = self.now_s + 0.1

    def live_among(self, loop: Loop, *crowds: int, seconds: float) -> None:
        """So long beside each number of neighbours."""
        for neighbours in crowds:
            self.neighbours = neighbours
            self.live(loop, seconds)

    def call(self) -> None:
        self.turn += 1
        turn = self.turn // BLOCK % 2
        trying = self.newcomer is not None and turn and self.spent_s < self.credit_s
        plan = self.newcomer if trying else self.plan
        call_s = self._run(plan)
        if trying:
            self.spent_s += max(0.0, call_s - self.times[self.plan, self.neighbours])
        self.calls.append((self.now_s, plan, call_s))
        self.served = (self.served[0] + 1, self.served[1] + call_s)

    def _run(self, plan: Plan) -> float:
        wobble = 1 + 0.02 * ((self.turn * 7) % 5 - 2)
        call_s = self.times[plan, self.neighbours] * wobble
        self.now_s += call_s
        self.energy_j += call_s * (plan.regions[0].rewrite.threads or CORES)
        label = Label(self.signatures[self.turn % len(self.signatures)], WORK)
        call = Call(label, self.now_s - call_s, call_s, {plan.regions[0].name: call_s})
        if plan not in self.mute:
            self.pending.append((plan.fingerprint, call))
        return call_s

    def make_ready(self, plan: Plan, reason: str, *, keep: Plan) -> Refusal | None:
        self.now_s += BUILD_S
        if plan in self.refuses:
            return self.refuses[plan]
        self.made_ready.append(plan)
        self.ready.append(plan.fingerprint)
        return None

    def play(self, plan: Plan, seconds: float, least: int, between: Callable[[], object]) -> None:
        end_s, calls = self.now_s + seconds, 0
        while calls < least or self.now_s < end_s:
            self.turn += 1
            self._run(plan)
            calls += 1
            between()

    def clock(self) -> float:
        return self.now_s

    def read(self) -> dict[str, Metric]:
        others = self.neighbours / CORES
        energy_j, self.energy_j = self.energy_j, 0.0
        return {
            OTHERS: Metric(value=others, source=Source.MEASURED),
            ENERGY: Metric(value=energy_j, source=Source.MODELLED),
            **{
                f"core.{core}.others_share": Metric(
                    value=float(core < self.neighbours), source=Source.MEASURED
                )
                for core in range(CORES)
            },
        }

    def note(self, work: Work) -> None:
        self.noted.append(work)

    def use(self, roofline: Roofline) -> None:
        self.roofline = roofline

    @property
    def in_force(self) -> str:
        return self.plan.fingerprint

    @property
    def trial(self) -> str | None:
        return None if self.newcomer is None else self.newcomer.fingerprint

    def timings(self) -> Iterable[tuple[str, Call]]:
        calls, self.pending = self.pending, []
        return calls

    def note_neighbours(self, count: int, spare_core: int | None) -> None:
        self.crowd = (count, spare_core)

    def why_illegal(self, plan: Plan) -> str | None:
        return None if plan.fingerprint in PLANS else "not one of ours"

    def close(self) -> None:
        return None

    def _refused(self, plan: Plan, done: Done) -> bool:
        self.asked.append((self.now_s, plan))
        if plan in self.refuses:
            done(self.refuses[plan])
        return plan in self.refuses

    def adopt(self, proposal: Proposal, done: Done) -> None:
        if not self._refused(proposal.plan, done):
            self._serve(proposal.plan)
            done(None)

    def begin_trial(self, proposal: Proposal, credit_s: float, done: Done) -> None:
        if not self._refused(proposal.plan, done):
            self.newcomer, self.spent_s, self.credit_s = proposal.plan, 0.0, credit_s
            self.tried.append(proposal.plan)
            done(None)

    def end_trial(self, *, keep_new: bool, why: str, gain: float | None) -> float:
        if keep_new:
            assert self.newcomer is not None
            self._serve(self.newcomer)
        self.newcomer = None
        return self.spent_s

    def stand_by(self, proposal: Proposal, done: Done) -> None:
        if not self._refused(proposal.plan, done):
            self.ready.append(proposal.plan.fingerprint)
            done(None)

    def measure(self, proposal: Proposal, done: Done) -> None:
        done(Refusal("nothing to measure here", lasting=True))

    def take_measured(self) -> tuple[Measurement, ...]:
        return ()

    def take_layers(self) -> tuple[LayerSeen, ...]:
        return ()

    def amend(self, plan: str, measured_gain: float) -> None:
        self.gains.append((plan, measured_gain))

    def _serve(self, plan: Plan) -> None:
        self.plan = plan
        self.switches.append((self.now_s, plan))


class Always:
    """Proposes the same all the time."""

    name = "always"

    def __init__(self, proposal: Proposal | None) -> None:
        self.proposal = proposal

    def propose(self, snapshot: Snapshot, options: Options) -> Proposal | None:
        return self.proposal

    def learn(self, outcome: Outcome) -> None:
        return None


class Asking:
    """A control plane that is nothing but a policy."""

    def __init__(self, policy: Policy) -> None:
        self.policy = policy

    def ask(self, snapshot: Snapshot, outcomes: Iterable[Outcome]) -> Answer:
        options = Options(plans=PLANS, num_cores=CORES)
        return Answer(proposal=self.policy.propose(snapshot, options))

    def close(self) -> None:
        return None


def mind(
    store: Store | None = None,
    objective: Objective | None = None,
    identities: Mapping[str, Mapping[str, str]] | None = None,
) -> Mind:
    return Mind(
        policy=Bandit.name,
        plans=PLANS,
        num_cores=CORES,
        objective=objective or Objective(),
        store=store or memory_store(),
        key=KEY,
        identities=identities or {},
    )


def loop(
    world: World,
    control: Control | None = None,
    limits: Limits | None = None,
    objective: Objective | None = None,
) -> Loop:
    objective = objective or Objective()
    return Loop(
        sampler=Sampler(world, CORES, signature=world.signatures[0], clock=world.clock),
        control=control or InProcess(mind(objective=objective)),
        guard=Guard(Table(CORES), PLANS, Costs(objective, CORES), limits or Limits()),
        hands=world,
    )


def learned(
    *crowds: int, seconds: float, times: dict[tuple[Plan, int], float] | None = None
) -> Store:
    """What a first start leaves to the next."""
    store = memory_store()
    control = InProcess(mind(store))
    world = World(times)
    world.live_among(loop(world, control), *crowds, seconds=seconds)
    control.mind.save()
    return store
