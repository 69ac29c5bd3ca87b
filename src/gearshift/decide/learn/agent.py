"""Learned choosers in files: as shipped, as trained by the user, as they went on learning here.

Must not know what any of them is asked.
"""

import logging
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from gearshift.decide.learn.checkpoint import Checkpoint, read_checkpoint, write_checkpoint
from gearshift.decide.learn.dqn import Dqn, Prior, Settings, nothing
from gearshift.decide.learn.ppo import Actor, PpoSettings, Rollout, taught
from gearshift.errors import CheckpointError

log = logging.getLogger("gearshift")
LESSONS = 100
SIMULATED = "simulated"
"""In place of a machine's name: learned in the simulator, and good for a start on any."""
WHILE_SERVING = Settings(
    rate=1e-4, capacity=5_000, epsilon=0.02, epsilon_least=0.002, epsilon_steps=5_000, warm_up=64
)
BETWEEN_CALLS = PpoSettings(rate=1e-4, rollout=256, epochs=4, batch=64, clip=0.1, entropy=0.0)
"""How an actor is taught from live calls: little at a time."""
EPSILON = 0.02
"""How often it tries something else meanwhile."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Role:
    """What an agent decides, from what; and how it goes on learning, if by deep Q-learning."""

    knob: str
    inputs: tuple[str, ...]
    actions: tuple[str, ...]
    prior: Prior = nothing
    settings: Settings = WHILE_SERVING

    def own_file(self, home: Path) -> Path:
        return home / "agents" / f"{self.knob}.safetensors"

    def read(self, path: Path) -> Checkpoint:
        """Raises CheckpointError."""
        return read_checkpoint(path, self.knob, self.inputs, self.actions)

    def write(self, path: Path, agent: Dqn | Actor, about: dict[str, object]) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        checkpoint = Checkpoint(
            knob=self.knob,
            network=agent.online,
            inputs=self.inputs,
            actions=self.actions,
            about=about,
            critic=agent.critic if isinstance(agent, Actor) else None,
        )
        write_checkpoint(path, checkpoint)


class KeptFile:
    """Of the agent that learned here, or was installed here, if there is one and it is sound; else
    of the one shipped."""

    def __init__(self, role: Role, shipped: Path, home: Path, machine: str) -> None:
        """Raises CheckpointError if neither can be used."""
        self._role, self._path, self._machine = role, role.own_file(home), machine
        own = self._own()
        self.kept_lessons = 0 if own is None else _lessons(own)
        self.checkpoint = own or role.read(shipped)

    def write(self, agent: Dqn | Actor, lessons: int) -> None:
        """What it learned, every so many lessons."""
        if lessons < self.kept_lessons + LESSONS or not agent.online.is_sound:
            return
        self.kept_lessons = lessons
        about: dict[str, object] = {"machine": self._machine, "lessons": lessons}
        try:
            self._role.write(self._path, agent, about)
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


class KeptAgent:
    """One that learns by deep Q-learning."""

    def __init__(self, role: Role, shipped: Path, home: Path, machine: str) -> None:
        """Raises CheckpointError."""
        self._file = KeptFile(role, shipped, home, machine)
        lessons, network = self._file.kept_lessons, self._file.checkpoint.network.copy()
        random = np.random.default_rng(lessons)
        self.dqn = Dqn(network, role.settings, random, role.prior, steps=lessons)

    def keep(self) -> None:
        self._file.write(self.dqn, self.dqn.steps)


class KeptActor:
    """One that learns by PPO: what it lives through is collected, and taught when there is time."""

    def __init__(
        self,
        role: Role,
        shipped: Path,
        home: Path,
        machine: str,
        settings: PpoSettings = BETWEEN_CALLS,
    ) -> None:
        """Raises CheckpointError."""
        self._file = KeptFile(role, shipped, home, machine)
        self._settings, self.lessons = settings, self._file.kept_lessons
        checkpoint = self._file.checkpoint
        random = np.random.default_rng(self.lessons)
        self.actor = Actor(checkpoint.network, checkpoint.critic, EPSILON, random)
        self.rollout = Rollout(settings.rollout)

    def learn(self) -> bool:
        """From what was collected, if that is enough; whether it was. Takes seconds, the first time
        more: not where a call waits. Raises MissingExtraError."""
        if not self.rollout.full:
            return False
        new = taught(self.actor, self.rollout, self._settings, seed=self.lessons)
        self.lessons += len(self.rollout.steps)
        self.rollout.steps.clear()
        if not all(network.is_sound for network in (new.online, new.critic) if network is not None):
            log.error("what the agent learned is no number; it stays as it was")
            return False
        self.actor.online, self.actor.critic = new.online, new.critic
        return True

    def keep(self) -> None:
        self._file.write(self.actor, self.lessons)
