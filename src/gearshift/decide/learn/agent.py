"""Learned choosers in files: as shipped, as trained by the user, as they went on learning here.

Must not know what any of them is asked.
"""

import logging
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from gearshift.decide.learn.checkpoint import Checkpoint, read_checkpoint, write_checkpoint
from gearshift.decide.learn.dqn import Dqn, Prior, Settings
from gearshift.errors import CheckpointError

log = logging.getLogger("gearshift")
LESSONS = 100
SIMULATED = "simulated"
"""In place of a machine's name: learned in the simulator, and good for a start on any."""
WHILE_SERVING = Settings(
    rate=1e-4, capacity=5_000, epsilon=0.02, epsilon_least=0.002, epsilon_steps=5_000, warm_up=64
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Role:
    """What an agent decides, from what, and how it goes on learning."""

    knob: str
    inputs: tuple[str, ...]
    actions: tuple[str, ...]
    prior: Prior
    settings: Settings = WHILE_SERVING

    def own_file(self, home: Path) -> Path:
        return home / "agents" / f"{self.knob}.safetensors"

    def read(self, path: Path) -> Checkpoint:
        """Raises CheckpointError."""
        return read_checkpoint(path, self.knob, self.inputs, self.actions)

    def write(self, path: Path, dqn: Dqn, about: dict[str, object]) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        checkpoint = Checkpoint(
            knob=self.knob,
            network=dqn.online,
            inputs=self.inputs,
            actions=self.actions,
            about=about,
        )
        write_checkpoint(path, checkpoint)


class KeptAgent:
    """The one that learned here, or was installed here, if there is one and it is sound; else the
    one shipped."""

    def __init__(self, role: Role, shipped: Path, home: Path, machine: str) -> None:
        """Raises CheckpointError if neither can be used."""
        self._role, self._path, self._machine = role, role.own_file(home), machine
        own = self._own()
        self._kept = 0 if own is None else _lessons(own)
        network = (own or role.read(shipped)).network.copy()
        random = np.random.default_rng(self._kept)
        self.dqn = Dqn(network, role.settings, random, role.prior, steps=self._kept)

    def keep(self) -> None:
        """What it learned, every so many lessons."""
        if self.dqn.steps < self._kept + LESSONS or not self.dqn.online.is_sound:
            return
        self._kept = self.dqn.steps
        about: dict[str, object] = {"machine": self._machine, "lessons": self._kept}
        try:
            self._role.write(self._path, self.dqn, about)
        except OSError as error:
            log.warning("what the agent learned is not kept: %s", error.strerror)

    def _own(self) -> Checkpoint | None:
        if not self._path.exists():
            return None
        try:
            checkpoint = self._role.read(self._path)
            if checkpoint.about.get("machine") not in (self._machine, SIMULATED):
                raise CheckpointError(f"{self._path.name} learned on another machine")
            return checkpoint
        except CheckpointError as error:
            kept_as = _set_aside(self._path)
            log.error("%s; it is kept as %s, the shipped agent decides", error, kept_as)
            return None


def _set_aside(path: Path) -> str:
    """Its new name: what is learned from here on is not written over it."""
    try:
        refused = f"{path.stem}.{path.stat().st_mtime_ns}.refused"
        return path.rename(path.with_name(refused)).name
    except OSError:  # then nothing can be written there, either, or it is gone
        return path.name


def _lessons(own: Checkpoint) -> int:
    """How many it had: what is known well is explored less."""
    told = own.about.get("lessons")
    return told if isinstance(told, int) and told > 0 else 0
