"""The learned chooser of unroll settings, in files.

Must not know what it is asked.
"""

from pathlib import Path

from gearshift.decide.learn.agent import KeptActor, Role
from gearshift.decide.unroll.actions import NAMES
from gearshift.decide.unroll.state import INPUTS

ROLE = Role(knob="unroll", inputs=INPUTS, actions=NAMES)
SHIPPED = Path(__file__).with_name("agent.safetensors")
"""Made by `gearshift train unroll`."""


class Agent(KeptActor):
    def __init__(self, home: Path, machine: str) -> None:
        super().__init__(ROLE, SHIPPED, home, machine)
