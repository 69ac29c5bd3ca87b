"""The learned chooser in files: as shipped, and as it went on learning on this machine.

Must not know what it is asked.
"""

import logging
from pathlib import Path

import numpy as np

from gearshift.decide.learn.checkpoint import Checkpoint, read_checkpoint, write_checkpoint
from gearshift.decide.learn.dqn import Dqn, Settings
from gearshift.decide.split.actions import NAMES
from gearshift.decide.split.view import INPUTS, foreseen
from gearshift.errors import CheckpointError

log = logging.getLogger("gearshift")
KNOB = "split"
SHIPPED = Path(__file__).with_name("agent.safetensors")
"""Made by `gearshift train split`."""
LESSONS = 100
WHILE_SERVING = Settings(
    rate=1e-4, capacity=5_000, epsilon=0.02, epsilon_least=0.002, epsilon_steps=5_000, warm_up=64
)


def own_file(home: Path) -> Path:
    return home / "agents" / f"{KNOB}.safetensors"


def read_agent(path: Path) -> Checkpoint:
    return read_checkpoint(path, KNOB, INPUTS, NAMES)


def write_agent(path: Path, dqn: Dqn, about: dict[str, object]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    write_checkpoint(
        path,
        Checkpoint(knob=KNOB, network=dqn.online, inputs=INPUTS, actions=NAMES, about=about),
    )


class Agent:
    """The one that learned here, if there is one and it is sound; else the one shipped."""

    def __init__(self, home: Path, machine: str) -> None:
        """Raises CheckpointError if neither can be used."""
        self._path, self._machine = own_file(home), machine
        own = _own(self._path, machine)
        self._kept = 0 if own is None else _lessons(own)
        checkpoint = own or read_agent(SHIPPED)
        random = np.random.default_rng(self._kept)
        self.dqn = Dqn(checkpoint.network.copy(), WHILE_SERVING, random, foreseen, steps=self._kept)

    def keep(self) -> None:
        """What it learned, every so many lessons."""
        if self.dqn.steps < self._kept + LESSONS or not self.dqn.online.is_sound:
            return
        self._kept = self.dqn.steps
        try:
            write_agent(self._path, self.dqn, {"machine": self._machine, "lessons": self._kept})
        except OSError as error:
            log.warning("what the agent learned is not kept: %s", error.strerror)


def _lessons(own: Checkpoint) -> int:
    """How many it had: what is known well is explored less."""
    told = own.about.get("lessons")
    return told if isinstance(told, int) and told > 0 else 0


def _own(path: Path, machine: str) -> Checkpoint | None:
    if not path.exists():
        return None
    try:
        checkpoint = read_agent(path)
        if checkpoint.about.get("machine") != machine:
            raise CheckpointError(f"{path.name} learned on another machine")
        return checkpoint
    except CheckpointError as error:
        log.error("%s; the shipped agent decides", error)
        return None
