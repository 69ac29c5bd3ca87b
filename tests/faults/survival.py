"""What must be true after every fault: the next good call is right, and nothing is left behind.

Must not know which fault it was.
"""

import copy
import gc
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from typing import Any

import psutil
import pytest
import torch
from torch import Tensor, nn

import gearshift
from faults.models import ORT, agree
from gearshift import Runtime
from gearshift.act.backends.eager import EagerBackend
from gearshift.act.backends.onnxruntime import OnnxRuntimeBackend
from gearshift.act.backends.openvino import OpenVinoBackend
from gearshift.act.backends.protocol import Backend, Executable, Order
from gearshift.capture.program import Program


@dataclass(frozen=True)
class Held:
    """What this process has open."""

    threads: frozenset[str]
    children: frozenset[int]
    num_fds: int

    @classmethod
    def now(cls) -> "Held":
        process = psutil.Process()
        names = [t.name for t in threading.enumerate() if t.name.startswith("gearshift")]
        children = [child.pid for child in process.children(recursive=True)]
        return cls(frozenset(names), frozenset(children), process.num_fds())


@contextmanager
def nothing_left() -> Iterator[None]:
    before = Held.now()
    yield
    after = Held.now()
    if after.num_fds > before.num_fds:  # perhaps only not collected yet, which is slow to do
        gc.collect()
        after = Held.now()
    assert after.threads <= before.threads, "a thread was left over"
    assert after.children <= before.children, "a child process was left over"
    assert after.num_fds <= before.num_fds, "file descriptors were left open"


@contextmanager
def survives(
    model: nn.Module | Program,
    example: Any,
    *,
    says: str = "",
    check: bool = True,
    **settings: Any,
) -> Iterator[Runtime]:
    """An adapted model. After the block it must answer as eager, before and after it is closed.

    `says` is what adapt must warn of; without `check` the answers are the test's own business.
    """
    args = (example,) if isinstance(example, Tensor) else tuple(example)
    eager: Any = model.eager if isinstance(model, Program) else model
    with nothing_left(), as_before(eager):
        with pytest.warns(UserWarning, match=says) if says else nullcontext():
            runtime = gearshift.adapt(model, args, **settings)
        try:
            yield runtime
            if check:
                answers_as(runtime, eager, args)
        finally:
            runtime.close()
        if check:
            answers_as(runtime, eager, args)
        del runtime


@contextmanager
def as_before(model: nn.Module) -> Iterator[None]:
    """Others use the same model: its weights and mode come back."""
    state = copy.deepcopy(model.state_dict())
    training = model.training
    try:
        yield
    finally:
        now = model.state_dict()
        if any(not torch.equal(now[name], tensor) for name, tensor in state.items()):
            model.load_state_dict(state)
        model.train(training)


def answers_as(runtime: Runtime, model: Any, args: Sequence[Any]) -> None:
    with torch.no_grad():
        agree(runtime(*args), model(*args))


def unharmed(model: nn.Module) -> Callable[[], None]:
    """Remembers a model; call the result to assert that it is still the same."""
    state = copy.deepcopy(model.state_dict())
    keys = {name: sorted(vars(part)) for name, part in model.named_modules()}
    modes = {name: part.training for name, part in model.named_modules()}
    hooks = _num_hooks(model)

    def check() -> None:
        now = model.state_dict()
        assert list(now) == list(state)
        for name, tensor in state.items():
            assert torch.equal(now[name], tensor), f"{name} was changed"
        assert {name: sorted(vars(part)) for name, part in model.named_modules()} == keys
        assert {name: part.training for name, part in model.named_modules()} == modes
        assert _num_hooks(model) == hooks

    return check


def _num_hooks(model: nn.Module) -> int:
    return sum(len(m._forward_hooks) + len(m._forward_pre_hooks) for m in model.modules())


class Counted(OnnxRuntimeBackend):
    """ONNX Runtime, counting what it builds and runs: proof that a plan really serves."""

    name = "counted"
    inner: Backend = OnnxRuntimeBackend()

    def __init__(self) -> None:
        self.builds = 0
        self.runs = 0

    def build(self, order: Order) -> Executable:
        built = self.inner.build(order)
        self.builds += 1

        def run(*inputs: Any) -> Sequence[Tensor]:
            self.runs += 1
            return built.run(*inputs)

        return replaced(built, run)


class CountedOpenVino(Counted):
    """The same for OpenVINO, which runs whatever ONNX Runtime does."""

    name = "counted openvino"
    inner = OpenVinoBackend()


class Witness(EagerBackend):
    """Eager's own numbers; each run is noted for the thread that made it."""

    def __init__(self, name: str, notes: "Notes") -> None:
        self.name = name
        self.notes = notes

    def build(self, order: Order) -> Executable:
        built = super().build(order)
        note = (self.name, order.ops[0])

        def run(*inputs: Any) -> Sequence[Tensor]:
            self.notes.mine().append(note)
            return built.run(*inputs)

        return replaced(built, run)


class Notes(threading.local):
    """What the calling thread's witnesses wrote down, in order."""

    def __init__(self) -> None:
        self._notes: list[tuple[str, str]] = []

    def mine(self) -> list[tuple[str, str]]:
        return self._notes


def replaced(built: Executable, run: Callable[..., Sequence[Tensor]]) -> Executable:
    """The same region, run by something else."""
    return Executable(
        run=run,
        inputs=built.inputs,
        sizes=built.sizes,
        outputs=built.outputs,
        held_bytes=built.held_bytes,
    )


def warm_up(model: nn.Module, example: Tensor) -> None:
    """Loads what the backends load once per process, so that it is not taken for a leak."""
    from faults.models import OPENVINO, one_region

    with gearshift.adapt(model, example) as runtime:
        for rewrite in (ORT, OPENVINO):
            runtime.swap(one_region(runtime, rewrite))
            runtime(example)
            runtime.settle()
