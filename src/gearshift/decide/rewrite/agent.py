"""The learned chooser of rewrites, in files.

Must not know what it is asked.
"""

from dataclasses import replace
from pathlib import Path

from gearshift.decide.learn.agent import WHILE_SERVING, KeptAgent, Role
from gearshift.decide.rewrite.actions import ENTRIES
from gearshift.decide.rewrite.reward import DISCOUNT
from gearshift.decide.rewrite.state import INPUTS, foreseen

ROLE = Role(
    knob="rewrite",
    inputs=INPUTS,
    actions=ENTRIES,
    prior=foreseen,
    settings=replace(WHILE_SERVING, discount=DISCOUNT),
)
SHIPPED = Path(__file__).with_name("agent.safetensors")
"""Made by `gearshift train rewrite`."""


class Agent(KeptAgent):
    def __init__(self, home: Path, machine: str) -> None:
        super().__init__(ROLE, SHIPPED, home, machine)
