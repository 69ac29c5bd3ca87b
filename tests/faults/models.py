"""Small models whose faults are easy to name, and plans for them.

Must not know which fault is injected.
"""

import math
from collections.abc import Callable
from functools import cache
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.utils import _pytree as pytree

from gearshift import Plan, Region, Rewrite, Runtime
from gearshift.capture.load import capture
from gearshift.capture.program import Program
from gearshift.ir.topology import CALLER
from gearshift.plan.cut import formed
from gearshift.plan.plan import whole

ORT = Rewrite(backend="onnxruntime", threads=1)
OPENVINO = Rewrite(backend="openvino", threads=1)
COMPILED = {"onnxruntime": ORT, "openvino": OPENVINO}
TOLERANCE = 1e-4
VOCABULARY = 50


class Mlp(nn.Module):
    """float32[batch, 16] -> float32[batch, 4]."""

    def __init__(self, width: int = 32) -> None:
        super().__init__()
        self.first = nn.Linear(16, width)
        self.second = nn.Linear(width, width)
        self.last = nn.Linear(width, 4)

    def forward(self, x: Tensor) -> Tensor:
        return self.last(torch.relu(self.second(torch.relu(self.first(x)))))


class Convnet(nn.Module):
    """float32[batch, 3, height, width] -> float32[batch, 4]; has buffers."""

    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv2d(3, 8, 3, padding=1)
        self.norm = nn.BatchNorm2d(8)
        self.drop = nn.Dropout(0.3)
        self.head = nn.Linear(8, 4)

    def forward(self, x: Tensor) -> Tensor:
        x = F.max_pool2d(torch.relu(self.norm(self.conv(x))), 2)
        return self.head(self.drop(x).mean((2, 3)))


class Encoder(nn.Module):
    """int64[batch, length] -> float32[batch, length, 16]; both sizes are free."""

    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Embedding(VOCABULARY, 16)
        self.heads = nn.Linear(16, 48)
        self.out = nn.Linear(16, 16)
        self.norm = nn.LayerNorm(16)

    def forward(self, ids: Tensor) -> Tensor:
        x = self.embed(ids)
        query, key, value = self.heads(x).chunk(3, -1)
        weights = torch.softmax(query @ key.transpose(1, 2) / math.sqrt(16), -1)
        return self.norm(x + self.out(F.gelu(weights @ value)))


class Branching(nn.Module):
    """float32[batch, 16] -> float32[batch, 4]; which head answers depends on the data."""

    def __init__(self) -> None:
        super().__init__()
        self.body = nn.Sequential(nn.Linear(16, 256), nn.ReLU(), nn.Linear(256, 256))
        self.high = nn.Sequential(nn.Linear(256, 256), nn.Tanh(), nn.Linear(256, 4))
        self.low = nn.Sequential(nn.Linear(256, 256), nn.Sigmoid(), nn.Linear(256, 4))
        self.drop = nn.Dropout(0.5)
        self.gain = 1.0
        self.calls = 0

    def forward(self, x: Tensor) -> Tensor:
        self.calls += 1
        hidden = F.dropout(self.body(x), 0.5, self.training) * self.gain
        if x.sum() > 0:  # here
            return self.high(hidden)
        return self.low(self.drop(hidden))


Made = tuple[nn.Module, Any]
"""A model and its example."""


def mlp(width: int = 32) -> tuple[nn.Module, Tensor]:
    torch.manual_seed(0)
    return Mlp(width).eval(), torch.randn(4, 16)


def convnet() -> tuple[nn.Module, Tensor]:
    torch.manual_seed(0)
    return Convnet().eval(), torch.randn(2, 3, 8, 8)


def encoder() -> tuple[nn.Module, Tensor]:
    torch.manual_seed(0)
    return Encoder().eval(), token_ids(2, 7)


def branching() -> tuple[nn.Module, Tensor]:
    torch.manual_seed(0)
    return Branching().eval(), torch.randn(4, 16)


def token_ids(batch: int, length: int) -> Tensor:
    return torch.randint(VOCABULARY, (batch, length))


@cache
def captured(make: Callable[[], Made]) -> tuple[Program, Any, Any]:
    """Program, model and example, captured once for all tests; `survives` puts weights back."""
    model, example = make()
    args = (example,) if isinstance(example, Tensor) else tuple(example)
    return capture(model, args, {}), model, example


def one_region(runtime: Runtime, rewrite: Rewrite = ORT, engine: str = CALLER) -> Plan:
    """One per fragment."""
    return whole(runtime.program.graph, engine=engine, rewrite=rewrite)


def by_module(runtime: Runtime, rewrite: Rewrite = ORT, engine: str = CALLER) -> Plan:
    like = Region(ops=(), engine=engine, rewrite=rewrite)
    return formed(runtime.program.graph, granularity=1, like=like)


def eager_plan(runtime: Runtime) -> Plan:
    return whole(runtime.program.graph)


def agree(got: Any, expected: Any) -> None:
    """Structure, shapes, dtypes and values, a NaN equal to a NaN."""
    haves, have_spec = pytree.tree_flatten(got)
    wants, spec = pytree.tree_flatten(expected)
    assert have_spec == spec
    for have, want in zip(haves, wants, strict=True):
        if not isinstance(want, Tensor):
            assert type(have) is type(want)
            assert have == want
            continue
        finite = want.detach()[want.isfinite()].double().abs()
        largest = finite.max().item() if finite.numel() else 1.0
        torch.testing.assert_close(
            have.detach(), want.detach(), rtol=0, atol=TOLERANCE * largest, equal_nan=True
        )


def agrees(got: Any, expected: Any) -> bool:
    try:
        agree(got, expected)
    except AssertionError:
        return False
    return True
