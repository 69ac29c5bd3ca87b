"""What the two planes say to each other, one JSON document a line.

Must not know pipes or processes.
"""

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

from gearshift.decide.policy import How, Outcome, Proposal
from gearshift.ir import snapshot as snapshots
from gearshift.ir.snapshot import Situation, Snapshot
from gearshift.plan.objective import Objective
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


def write_hello(hello: Hello) -> str:
    plans = [to_data(plan) for plan in hello.plans.values()]
    rest = {"policy": hello.policy, "num_cores": hello.num_cores, "home": hello.home}
    objective = asdict(hello.objective)
    return json.dumps({**rest, "plans": plans, "objective": objective, "key": dict(hello.key)})


def read_hello(line: str) -> Hello:
    data = json.loads(line)
    plans = [plain(entry) for entry in data.pop("plans")]
    objective = Objective(**data.pop("objective"))
    return Hello(plans={plan.fingerprint: plan for plan in plans}, objective=objective, **data)


def write_news(snapshot: Snapshot, outcomes: list[Outcome]) -> str:
    told = [asdict(outcome) for outcome in outcomes]
    return json.dumps({"snapshot": snapshots.to_data(snapshot), "outcomes": told})


def read_news(line: str) -> tuple[Snapshot, list[Outcome]]:
    data = json.loads(line)
    return snapshots.from_data(data["snapshot"]), [_outcome(o) for o in data["outcomes"]]


def write_proposal(proposal: Proposal | None) -> str:
    if proposal is None:
        return "null"
    return json.dumps({**asdict(proposal), "plan": to_data(proposal.plan)})


def read_proposal(line: str) -> Proposal | None:
    data = json.loads(line)
    if data is None:
        return None
    data |= {"plan": plain(data["plan"]), "how": How(data["how"])}
    return Proposal(**data)


def _outcome(data: dict[str, Any]) -> Outcome:
    situation = data["situation"]
    data |= {"how": How(data["how"]), "situation": situation and Situation(**situation)}
    return Outcome(**data)
