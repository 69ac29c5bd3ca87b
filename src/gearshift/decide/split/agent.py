"""The learned chooser of splits, in files.

Must not know what it is asked.
"""

from dataclasses import replace
from functools import partial
from pathlib import Path

from gearshift.decide.learn.agent import KeptAgent, Role
from gearshift.decide.split.actions import NAMES
from gearshift.decide.split.view import INPUTS, foreseen

ROLE = Role(knob="split", inputs=INPUTS, actions=NAMES, prior=foreseen)
SHIPPED = Path(__file__).with_name("agent.safetensors")
"""Made by `gearshift train split`."""


class Agent(KeptAgent):
    def __init__(self, home: Path, machine: str, time: float = 1.0) -> None:
        """`time` is the weight of time in what it earns."""
        role = replace(ROLE, prior=partial(foreseen, time=time))
        super().__init__(role, SHIPPED, home, machine)
