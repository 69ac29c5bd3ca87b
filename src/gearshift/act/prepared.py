"""A plan that was built and verified, ready to be called or put in force.

Must not know which plan is in force.
"""

from dataclasses import dataclass
from typing import Any

from gearshift.act.executor import Executor
from gearshift.act.variants import Variants


@dataclass(frozen=True, slots=True, kw_only=True)
class Prepared:
    executor: Executor
    variants: tuple[Variants, ...]

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self.executor(args, kwargs)

    @property
    def worst_error(self) -> float:
        return max((v.worst_error for v in self.variants), default=0.0)

    @property
    def held_bytes(self) -> int:
        return sum(built.held_bytes for v in self.variants for built in v.built)

    def release(self) -> None:
        """Frees what was built, if it is not to be put in force."""
        for variants in self.variants:
            variants.release()
