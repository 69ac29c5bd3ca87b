"""The policies by name.

Must not know what is done with what they propose.
"""

import logging

from gearshift.decide.bandit import Bandit, Score
from gearshift.decide.keep import Keep
from gearshift.decide.policy import DQN, GREEDY, POLICIES, PPO, SPLITTING, Policy
from gearshift.decide.proportional import Proportional
from gearshift.decide.regions.former import Former
from gearshift.decide.rules import Rules
from gearshift.decide.split.account import Account
from gearshift.decide.split.agent import Agent
from gearshift.decide.split.players import Greedy, Learned, Player, Share
from gearshift.decide.split.policy import SplitPolicy
from gearshift.decide.unroll.agent import Agent as Unroller
from gearshift.decide.unroll.players import Learned as LearnedSteps
from gearshift.decide.unroll.policy import Subject, UnrollPolicy
from gearshift.errors import UsageError
from gearshift.plan.objective import SplitWeights
from gearshift.predict.table import Table

log = logging.getLogger("gearshift")
MARGIN = 0.03
"""The agent's own word for how little is not worth a change."""


def policy_named(
    name: str,
    *,
    table: Table,
    score: Score,
    account: Account | None,
    agent: Agent | None,
    former: Former | None = None,
    unroller: Unroller | None = None,
    unrolled: Subject | None = None,
) -> Policy:
    """The bandit, where there is nothing to divide or to unroll for one that would, or no sound
    agent."""
    bandit = Bandit(table, score, former, lambda: table.roofline)
    if name == Bandit.name:
        return bandit
    if name == PPO:
        if unroller is not None and unrolled is not None:
            steps = LearnedSteps(unroller.actor, rollout=unroller.rollout)
            return UnrollPolicy(bandit, steps, unrolled, table)
        log.warning("policy %s: nothing to unroll here, or no agent; the bandit decides", name)
        return bandit
    if name in SPLITTING:
        player = None if account is None else _player(name, account.weights, agent)
        if account is not None and player is not None:
            return SplitPolicy(player, account, lambda: _bandwidth_bytes_s(table))
        log.warning("policy %s: nothing to divide here, or no agent; the bandit decides", name)
        return bandit
    simple: dict[str, type[Policy]] = {kind.name: kind for kind in (Keep, Rules, Proportional)}
    if name not in simple:
        raise UsageError(f"no policy {name!r}; there are {', '.join(POLICIES)}")
    return simple[name]()


def _player(name: str, weights: SplitWeights, agent: Agent | None) -> Player | None:
    """None for want of a sound agent."""
    if name != DQN:
        return Greedy() if name == GREEDY else Share()
    if agent is None:
        return None
    return Learned(agent.dqn, learning=True, margin=MARGIN, time=weights.time)


def _bandwidth_bytes_s(table: Table) -> float | None:
    return None if table.roofline is None else table.roofline.dram_bytes_s
