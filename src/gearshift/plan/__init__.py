"""What may be decided: plan, moves, objective, legality; one file per knob. Pure data.

Must not know torch, numpy, a clock, or how a plan is carried out.
"""

from gearshift.plan.legal import Space, check, legal_moves
from gearshift.plan.objective import Objective, SplitWeights
from gearshift.plan.plan import Move, Plan, Region
from gearshift.plan.rewrite import Rewrite
from gearshift.plan.split import Split
from gearshift.plan.text import diff, dumps, loads, render

__all__ = [
    "Move",
    "Objective",
    "Plan",
    "Region",
    "Rewrite",
    "Space",
    "Split",
    "SplitWeights",
    "check",
    "diff",
    "dumps",
    "legal_moves",
    "loads",
    "render",
]
