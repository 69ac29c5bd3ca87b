"""Every error a user can meet, as one tree.

GearshiftError
├── UsageError          a wrong argument: MODEL, plan file, setting       (exit code 2)
│   ├── ModelError      MODEL cannot be loaded
│   ├── PlanError       a plan is malformed or illegal for this model and machine
│   └── InputError      a call's tensors do not fit the model
├── MissingExtraError   an optional library is needed; names the install command
├── CaptureError        a model, or part of it, cannot be captured; says where and why
├── CompileError        a region cannot be built by its backend
├── MemoryLimitError    a plan would exceed the objective's memory limit
├── EngineError         an engine failed, or was used after it was closed
├── CheckpointError     an agent's file is damaged, or for something else
└── VerifyError         a plan's outputs differ from the model's              (exit code 3)
"""


class GearshiftError(Exception):
    """Something Gearshift can explain; the message says what to do."""


class UsageError(GearshiftError):
    pass


class ModelError(UsageError):
    pass


class PlanError(UsageError):
    pass


class InputError(UsageError, ValueError):
    """Also a ValueError, so that code written for the plain model still catches it."""


class MissingExtraError(GearshiftError, ImportError):
    def __init__(self, extra: str, purpose: str) -> None:
        self.extra = extra
        super().__init__(f'{purpose} needs an extra: pip install "gearshift[{extra}]"')


class CaptureError(GearshiftError):
    def __init__(self, reason: str, where: str | None = None) -> None:
        self.reason, self.where = reason, where
        super().__init__(f"{where}: {reason}" if where else reason)


class CompileError(GearshiftError):
    pass


class MemoryLimitError(GearshiftError):
    pass


class EngineError(GearshiftError):
    def __init__(self, reason: str, engine: str | None = None) -> None:
        """`engine`: which one of a team."""
        self.engine = engine
        super().__init__(reason)


class CheckpointError(GearshiftError):
    pass


class VerifyError(GearshiftError):
    pass
