"""The policy that changes nothing: the baseline of all others, and the null of the seam."""

from gearshift.decide.policy import Options, Outcome, Proposal
from gearshift.ir.snapshot import Snapshot


class Keep:
    name = "keep"

    def propose(self, snapshot: Snapshot, options: Options) -> Proposal | None:
        return None

    def learn(self, outcome: Outcome) -> None:
        return None
