"""The learned chooser of splits, in files.

Must not know what it is asked.
"""

from dataclasses import replace
from functools import partial
from pathlib import Path

from gearshift.decide.learn.agent import WHILE_SERVING, KeptAgent, Role
from gearshift.decide.split.actions import NAMES
from gearshift.decide.split.view import INPUTS, foreseen

MOST = 0.15
"""What it learned moves what a split is worth by no more: with the usual weight of time, what is
foreseen to take half as long again is never thought best, however far a machine is from what it was
trained on."""
ROLE = Role(
    knob="split",
    inputs=INPUTS,
    actions=NAMES,
    prior=foreseen,
    settings=replace(WHILE_SERVING, most=MOST),
)
SHIPPED = Path(__file__).with_name("agent.safetensors")
"""Made by `gearshift train split`."""


class Agent(KeptAgent):
    def __init__(self, home: Path, machine: str, time: float = 1.0) -> None:
        """`time` is the weight of time in what it earns."""
        role = replace(ROLE, prior=partial(foreseen, time=time))
        super().__init__(role, SHIPPED, home, machine)
