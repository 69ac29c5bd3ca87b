"""The control plane: sees snapshots, remembers them, proposes. Runs in a process of its own.

Must not know the data plane; everything it is told and says is plain data.
"""

import json
import logging
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from math import inf, isfinite
from pathlib import Path
from time import process_time
from types import MappingProxyType
from typing import TypeVar

from gearshift.decide.messages import Answer
from gearshift.decide.policies import policy_named
from gearshift.decide.policy import DQN, PPO, How, Options, Outcome, Proposal
from gearshift.decide.regions.former import Former
from gearshift.decide.regions.forming import Forming
from gearshift.decide.regions.ledger import Key
from gearshift.decide.reward import Costs
from gearshift.decide.rewrite.agent import Agent as Rewriter
from gearshift.decide.rewrite.players import Learned, Measured, Player
from gearshift.decide.rules import Rules
from gearshift.decide.split.account import Account
from gearshift.decide.split.agent import Agent
from gearshift.decide.split.sight import Subject
from gearshift.decide.unroll.agent import Agent as Unroller
from gearshift.decide.unroll.policy import Subject as Unrolled
from gearshift.decide.unroll.policy import UnrollPolicy
from gearshift.errors import CheckpointError, MissingExtraError
from gearshift.ir.measurement import Source
from gearshift.ir.pieces import Piece
from gearshift.ir.recurrent import Stack
from gearshift.ir.snapshot import Sample, Situation, Snapshot
from gearshift.ir.topology import CALLER
from gearshift.observe.store import DecisionRow, PlanKey, PlanRow, RegionKey, Store
from gearshift.plan.decision import Decision
from gearshift.plan.objective import Objective
from gearshift.plan.plan import Plan
from gearshift.plan.text import plain
from gearshift.predict.calibration import Calibration
from gearshift.predict.estimate import Estimate
from gearshift.predict.table import Table

log = logging.getLogger("gearshift")
A = TypeVar("A")
TRUSTED = 100
"""What the store tells counts for no more than so many calls: the machine may have changed."""
SAVE_EVERY_S = 2.0
CALIBRATION, NEIGHBOURS = "calibration", "neighbours "
NO_IDENTITIES: Mapping[str, Mapping[str, str]] = MappingProxyType({})
NO_STACKS: Mapping[str, Stack] = MappingProxyType({})


class Mind:
    def __init__(
        self,
        *,
        policy: str,
        plans: Mapping[str, Plan],
        num_cores: int,
        objective: Objective,
        store: Store,
        key: Mapping[str, str],
        identities: Mapping[str, Mapping[str, str]] = NO_IDENTITIES,
        subject: Subject | None = None,
        pieces: Piece | None = None,
        forming: Forming | None = None,
        signature: str | None = None,
        stacks: Mapping[str, Stack] = NO_STACKS,
        home: Path | None = None,
    ) -> None:
        """`key` names machine, versions and graph in the store; `pieces` are what regions may be
        made of anew, and `signature` is what they are measured on; `home` is where agents are kept
        that learn."""
        self.options = Options(plans=plans, num_cores=num_cores)
        self._pieces = {} if pieces is None else {piece.ops: piece for piece in pieces.walk()}
        self.store, self.key, self.identities = store, dict(key), identities
        self.costs = Costs(objective, num_cores)
        self.table = Table(num_cores, self._calibration())
        self._unsaved: dict[tuple[Situation, str], list[Sample]] = defaultdict(list)
        self._on_trial: dict[str, list[Sample]] = defaultdict(list)
        self._foreseen: dict[tuple[Situation, str], Estimate] = {}
        self._decided: list[Decision] = []
        self._saved_s = -inf
        folder, machine, instead = home or Path(), self.key["machine"], "the bandit decides"
        self._agent: Agent | None = None
        self._unroller: Unroller | None = None
        if policy == DQN:
            self._agent = _sound(lambda: Agent(folder, machine, objective.split.time), instead)
        if policy == PPO:
            self._unroller = _sound(lambda: Unroller(folder, machine), instead)
        self._account = (
            None
            if subject is None
            else Account(model=self.table, subject=subject, weights=objective.split)
        )
        self._new_plans: tuple[Plan, ...] = ()
        self._recalled = self._recall()
        for sample in self._recalled:
            self.table.add(sample)
        forming = forming or Forming()
        self._signature = signature
        self._rewriter: Rewriter | None = None
        if forming.rl_training_epochs:
            measured = "all that is quick to build is measured"
            self._rewriter = _sound(lambda: Rewriter(folder, machine), measured)
        former = None
        if pieces is not None and signature is not None:
            learned = self._rewriter and Learned(self._rewriter.dqn, learning=True)
            player: Player = learned or Measured()
            former = Former(
                root=pieces,
                signature=signature,
                player=player,
                forming=forming,
                num_cores=num_cores,
            )
            for where, seconds in self._regions_recalled():
                former.ledger.add(where, seconds)
        self.policy = policy_named(
            policy,
            table=self.table,
            score=self.costs.of,
            account=self._account,
            agent=self._agent,
            former=former,
            unroller=self._unroller,
            unrolled=_unrolled(stacks, num_cores, objective),
        )

    def see(self, snapshot: Snapshot) -> Answer:
        self.options.now_s = snapshot.at_s
        self.costs.note(snapshot, self.options.plans)
        for sample in snapshot.samples:
            self.table.add(sample)
            usual = self.table.usual(sample)
            if sample.plan == snapshot.trial:  # what the trial tells is better
                self._on_trial[sample.plan].append(usual)
            else:
                self._unsaved[sample.situation, sample.plan].append(usual)
        self._check_predictions()
        self._save_measured(snapshot)
        proposal = self._propose(snapshot)
        if proposal is not None and proposal.how is not How.MEASURE:
            self._know(proposal.plan)
            if snapshot.situation is not None:
                self._foresee(proposal.plan, snapshot.situation)
        new_plans, self._new_plans = self._new_plans, ()
        checked, typical_error = self.table.calibration.typical_error()
        return Answer(
            proposal=proposal,
            cpu_s=process_time(),
            checked=checked,
            typical_error=typical_error,
            store=self.store.mode,
            roofline=self.table.roofline,
            policy=self.policy.name,
            reward=self._reward(snapshot),
            recalled=self._take_recalled(),
            plans=new_plans,
        )

    def _know(self, plan: Plan) -> None:
        """One that was formed anew is an option like any other from here on."""
        if plan.fingerprint not in self.options.plans:
            self.options.plans = {**self.options.plans, plan.fingerprint: plan}

    def _propose(self, snapshot: Snapshot) -> Proposal | None:
        """A policy that raises, or foresees what is no number, is replaced by plain rules."""
        try:
            proposal = self.policy.propose(snapshot, self.options)
            times = () if proposal is None else (proposal.predicted_s, proposal.current_s)
            if all(t is None or (isfinite(t) and t > 0) for t in times):
                return proposal
            log.error("the policy %s foresees %s; rules decide", self.policy.name, times)
        except Exception:
            log.exception("the policy %s failed; rules decide", self.policy.name)
        self.policy = Rules()
        return None

    def tidy(self, at_s: float) -> None:
        """Now and then, when nobody waits for an answer: what was learned is saved."""
        if at_s - self._saved_s > SAVE_EVERY_S:
            self._saved_s = at_s
            self._teach()
            self.save()

    def _teach(self) -> None:
        """What was lived through by an agent that learns many steps at a time."""
        if self._unroller is not None:
            try:
                self._unroller.learn()
            except MissingExtraError as error:
                log.warning("%s; it decides as it is", error)
                self._unroller.rollout.steps.clear()

    def save(self) -> None:
        where = {"machine": self.key["machine"], "graph": self.key["graph"]}
        decided, self._decided = self._decided, []
        for decision in decided:
            self.store.add_decision(DecisionRow(decision=decision, **where))
        for (situation, fingerprint), samples in self._unsaved.items():
            plan = self.options.plans.get(fingerprint)
            if plan is not None:
                seconds = [s for sample in samples for s in sample.seconds]
                self.store.add_plan(self._plan_key(situation), plan, seconds, max_error=None)
                self._save_regions(situation, plan, samples)
        self._unsaved.clear()
        learned = json.dumps(self.table.calibration.to_data())
        self.store.set_fact(self.key["machine"], CALIBRATION, learned)
        for agent in (self._agent, self._rewriter, self._unroller):
            if agent is not None:
                agent.keep()

    def _reward(self, snapshot: Snapshot) -> dict[str, float]:
        if isinstance(self.policy, UnrollPolicy):
            return {} if self.policy.reward is None else self.policy.reward.parts()
        mine = [sample for sample in snapshot.samples if sample.plan == snapshot.plan]
        if self._account is None or not mine:
            return {}
        try:
            reward = self._account.reward(mine[-1], self.options.plans)
        except (ArithmeticError, LookupError, ValueError):  # it is only told, nothing rests on it
            log.exception("what the split in force earned is not known")
            return {}
        return {} if reward is None else reward.parts()

    def hear(self, outcome: Outcome) -> None:
        self.options.heed(outcome)
        try:
            self.policy.learn(outcome)
        except Exception:
            log.exception("the policy %s failed; rules decide", self.policy.name)
            self.policy = Rules()
        self._relate(outcome)
        decision = Decision(
            at_s=outcome.at_s,
            plan=outcome.plan,
            reason=outcome.reason,
            outcome=outcome.why,
            predicted_gain=outcome.predicted_gain,
            measured_gain=outcome.measured_gain,
        )
        self._decided.append(decision)

    def _relate(self, outcome: Outcome) -> None:
        compared, situation = outcome.compared, outcome.situation
        seen = self._on_trial.pop(outcome.plan, [])
        if compared is None or situation is None:
            for sample in seen:
                self._unsaved[sample.situation, sample.plan].append(sample)
            return
        gain, calls = compared.times_as_fast, compared.calls
        self.table.relate(situation, outcome.plan, compared.other, gain, calls)
        usual_s = self.table.usual_s(situation, outcome.plan)
        if usual_s is not None:
            told = Sample(plan=outcome.plan, situation=situation, seconds=(usual_s,) * calls)
            self._unsaved[situation, outcome.plan].append(told)

    def _foresee(self, plan: Plan, situation: Situation) -> None:
        """To be compared with what will be measured."""
        estimate = self.table.estimate(plan, situation, self.options.plans)
        if estimate is not None and estimate.source is Source.MODELLED:
            self._foreseen.setdefault((situation, plan.fingerprint), estimate)

    def _check_predictions(self) -> None:
        for (situation, fingerprint), estimate in list(self._foreseen.items()):
            seen = self.table.measured(situation, fingerprint)
            if seen is not None:
                del self._foreseen[situation, fingerprint]
                self.table.calibration.add(
                    estimate.kind,
                    raw_s=estimate.raw_s or estimate.mean_s,
                    predicted_s=estimate.mean_s,
                    measured_s=seen.mean_s,
                )

    def _plan_key(self, situation: Situation) -> PlanKey:
        return PlanKey(signature=situation.signature, context=_context(situation), **self.key)

    def _save_regions(self, situation: Situation, plan: Plan, samples: Sequence[Sample]) -> None:
        """Whatever the plan they ran in: equal regions share what was measured of them."""
        identities = self.identities.get(plan.fingerprint, {})
        for region in plan.regions:
            times = [sample.region_s.get(region.name) for sample in samples]
            seconds = [s for s in times if s is not None]
            piece = self._pieces.get(region.ops)
            name = identities.get(region.name) or (piece and piece.identity)
            if name and seconds:
                key = self._region_key(name, situation, region.engine, region.setting)
                self.store.add_region(key, seconds)

    def _region_key(
        self, region: str, situation: Situation, engine: str, setting: str
    ) -> RegionKey:
        return RegionKey(
            machine=self.key["machine"],
            versions=self.key["versions"],
            region=region,
            signature=situation.signature,
            engine=engine,
            rewrite=setting,
            context=_context(situation),
        )

    def _save_measured(self, snapshot: Snapshot) -> None:
        """Regions timed by themselves, on the example whatever calls are like."""
        if snapshot.situation is None or self._signature is None:
            return
        situation = replace(snapshot.situation, signature=self._signature)
        for row in snapshot.measured:
            key = self._region_key(row.region, situation, row.engine, row.rewrite)
            self.store.add_region(
                key,
                [row.latency_s],
                held_bytes=row.held_bytes,
                build_s=row.build_s,
                max_error=row.max_error,
            )

    def _regions_recalled(self) -> Iterator[tuple[Key, float]]:
        """What pieces took on a quiet machine."""
        known = {piece.identity for piece in self._pieces.values()}
        where = {name: self.key[name] for name in ("machine", "versions")}
        for row in self.store.regions(**where):
            key = row.key
            quiet = key.context == f"{NEIGHBOURS}0" and key.engine == CALLER
            if quiet and key.region in known:
                yield (key.signature, key.region, key.rewrite), row.latency.mean_s

    def _recall(self) -> tuple[Sample, ...]:
        """A few calls of the mean time stand for all that the store tells of."""
        found = []
        for row in sorted(self.store.plans_of(**self.key), key=lambda row: row.seen_at_s):
            neighbours = row.key.context.removeprefix(NEIGHBOURS)
            if row.fingerprint not in self.options.plans:
                self._recall_plan(row)
            if row.fingerprint in self.options.plans and neighbours.isdigit():
                situation = Situation(signature=row.key.signature, neighbours=int(neighbours))
                seconds = (row.latency.mean_s,) * min(TRUSTED, row.latency.count)
                found.append(Sample(plan=row.fingerprint, situation=situation, seconds=seconds))
        return tuple(found)

    def _recall_plan(self, row: PlanRow) -> None:
        """One formed anew by an earlier start, if it still fits."""
        try:
            plan = plain(json.loads(row.text))
        except (KeyError, TypeError, ValueError):  # not what we wrote
            return
        known = {op for ops in self._pieces for op in ops}
        fits = known and all(known.issuperset(region.ops) for region in plan.regions)
        if fits and plan.fingerprint == row.fingerprint:
            self._know(plan)
            self._new_plans = (*self._new_plans, plan)

    def _take_recalled(self) -> tuple[Sample, ...]:
        recalled, self._recalled = self._recalled, ()
        return recalled

    def _calibration(self) -> Calibration:
        try:
            kept = json.loads(self.store.fact(self.key["machine"], CALIBRATION) or "{}")
            return Calibration.from_data(kept)
        except (AttributeError, TypeError, ValueError):  # not what we wrote
            return Calibration()


def _context(situation: Situation) -> str:
    return f"{NEIGHBOURS}{situation.neighbours}"


def _sound(make: Callable[[], A], otherwise: str) -> A | None:
    """An agent from its file; None, and it is said who decides then, if that is not sound."""
    try:
        return make()
    except CheckpointError as error:
        log.error("%s; %s", error, otherwise)
        return None


def _unrolled(stacks: Mapping[str, Stack], num_cores: int, objective: Objective) -> Unrolled | None:
    """None where nothing is recurrent."""
    if not stacks:
        return None
    limit = objective.memory_limit
    return Unrolled(stacks=stacks, num_cores=num_cores, memory_limit=limit)
