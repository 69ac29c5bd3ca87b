"""How eagerly regions are formed anew.

Must not know how that is done.
"""

from dataclasses import dataclass

from gearshift.errors import UsageError


@dataclass(frozen=True, slots=True, kw_only=True)
class Forming:
    initial_granularity: int = 0
    """How many levels down the hierarchy of modules and data flow the first regions are; 0: the
    whole model is one."""
    performance_threshold: float = 0.8
    """A region that reaches less than this share of what the roofline allows is looked into, and
    divided if that helps."""
    merging_threshold: float = 0.1
    """Neighbours are merged if what lies between them costs more than this share of their time."""
    rl_training_epochs: int = 0
    """Lessons that the agent takes from each thing measured while the model serves; 0: no agent,
    what is built in tenths of a second is measured, six entries at most."""

    def __post_init__(self) -> None:
        sound = {
            "initial_granularity": _whole(self.initial_granularity),
            "performance_threshold": 0 <= self.performance_threshold <= 10,
            "merging_threshold": self.merging_threshold >= 0,
            "rl_training_epochs": _whole(self.rl_training_epochs),
        }
        wrong = [name for name, good in sound.items() if not good]
        if wrong:
            raise UsageError(f"{wrong[0]}={getattr(self, wrong[0])!r} makes no sense")


def _whole(number: int) -> bool:
    return type(number) is int and number >= 0
