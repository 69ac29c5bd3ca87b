"""What the two planes say to each other, one JSON document a line.

Must not know pipes or processes.
"""

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

from gearshift.decide.policy import Compared, How, Outcome, Proposal
from gearshift.decide.regions.forming import Forming
from gearshift.decide.split.sight import Subject
from gearshift.ir import pieces
from gearshift.ir import snapshot as snapshots
from gearshift.ir.pieces import Piece
from gearshift.ir.recurrent import Stack
from gearshift.ir.roofline import Roofline
from gearshift.ir.snapshot import Sample, Situation, Snapshot
from gearshift.plan.objective import Objective, SplitWeights
from gearshift.plan.plan import Plan
from gearshift.plan.text import plain, to_data


@dataclass(frozen=True, slots=True, kw_only=True)
class Hello:
    """What the control plane must know before the first snapshot."""

    policy: str
    plans: Mapping[str, Plan]
    num_cores: int
    objective: Objective
    home: str
    key: Mapping[str, str] = field(default_factory=dict)
    identities: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    """For each plan, its regions' identities by name: what is measured of them is kept by that."""
    subject: Subject | None = None
    """What there is to divide; None if the model cannot be."""
    pieces: Piece | None = None
    """What regions may be made of; None if they are not formed anew."""
    signature: str | None = None
    """Of the example: what the pieces' work was counted for, and what they are measured on."""
    forming: Forming = field(default_factory=Forming)
    stacks: Mapping[str, Stack] = field(default_factory=dict)
    """The recurrent ops that can be unrolled."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """To one snapshot."""

    proposal: Proposal | None = None
    cpu_s: float = 0.0
    """What the control plane has used so far."""
    checked: int = 0
    """Predictions that were compared with what was measured,"""
    typical_error: float = 0.0
    """and the share by which they are typically off."""
    store: str = ""
    """How the store is used: see its `mode`."""
    roofline: Roofline | None = None
    policy: str = ""
    """Who decides: another than was asked for, if that failed, or has nothing to go by."""
    reward: Mapping[str, float] = field(default_factory=dict)
    """What the split in force earned in its last calls, by its named parts."""
    recalled: tuple[Sample, ...] = ()
    """What the store told, once: for each plan in each situation a few calls that stand for all."""
    plans: tuple[Plan, ...] = ()
    """Those among them that are no candidates."""


def write_hello(hello: Hello) -> str:
    return json.dumps(
        {
            "policy": hello.policy,
            "plans": [to_data(plan) for plan in hello.plans.values()],
            "num_cores": hello.num_cores,
            "objective": asdict(hello.objective),
            "home": hello.home,
            "key": dict(hello.key),
            "identities": {plan: dict(names) for plan, names in hello.identities.items()},
            "subject": hello.subject and asdict(hello.subject),
            "pieces": hello.pieces and pieces.to_data(hello.pieces),
            "signature": hello.signature,
            "forming": asdict(hello.forming),
            "stacks": {name: asdict(stack) for name, stack in hello.stacks.items()},
        }
    )


def read_hello(line: str) -> Hello:
    data = json.loads(line)
    plans = [plain(entry) for entry in data.pop("plans")]
    wanted = data.pop("objective")
    objective = Objective(**{**wanted, "split": SplitWeights(**wanted["split"])})
    subject, tree = data.pop("subject"), data.pop("pieces")
    return Hello(
        pieces=tree and pieces.from_data(tree),
        forming=Forming(**data.pop("forming")),
        stacks={name: Stack(**stack) for name, stack in data.pop("stacks").items()},
        plans={plan.fingerprint: plan for plan in plans},
        objective=objective,
        subject=subject and Subject.from_data(subject),
        **data,
    )


def write_news(snapshot: Snapshot, outcomes: list[Outcome]) -> str:
    told = [asdict(outcome) for outcome in outcomes]
    return json.dumps({"snapshot": snapshots.to_data(snapshot), "outcomes": told})


def read_news(line: str) -> tuple[Snapshot, list[Outcome]]:
    data = json.loads(line)
    return snapshots.from_data(data["snapshot"]), [_outcome(o) for o in data["outcomes"]]


def write_answer(answer: Answer) -> str:
    proposal, roofline = answer.proposal, answer.roofline
    told = None
    if proposal is not None:
        told = {**asdict(proposal), "plan": to_data(proposal.plan)}
    return json.dumps(
        {
            "proposal": told,
            "cpu_s": answer.cpu_s,
            "checked": answer.checked,
            "typical_error": answer.typical_error,
            "store": answer.store,
            "roofline": roofline and roofline.to_dict(),
            "policy": answer.policy,
            "reward": dict(answer.reward),
            "recalled": [snapshots.sample_to_data(sample) for sample in answer.recalled],
            "plans": [to_data(plan) for plan in answer.plans],
        }
    )


def read_answer(line: str) -> Answer:
    data = json.loads(line)
    proposal, roofline = data.pop("proposal"), data.pop("roofline")
    recalled = tuple(map(snapshots.sample_from_data, data.pop("recalled")))
    plans = tuple(map(plain, data.pop("plans")))
    if proposal is not None:
        plan, how = plain(proposal.pop("plan")), How(proposal.pop("how"))
        proposal = Proposal(plan=plan, how=how, **proposal)
    roofline = roofline and Roofline.from_dict(roofline)
    return Answer(proposal=proposal, roofline=roofline, recalled=recalled, plans=plans, **data)


def _outcome(data: dict[str, Any]) -> Outcome:
    situation, compared = data["situation"], data["compared"]
    data |= {"how": How(data["how"]), "situation": situation and Situation(**situation)}
    data["compared"] = compared and Compared(**compared)
    return Outcome(**data)
