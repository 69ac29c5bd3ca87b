"""An index the model refuses is refused under every plan, however it was computed."""

from typing import Any

import pytest
import torch
from torch import Tensor, nn

import gearshift
from gearshift.plan import Rewrite
from gearshift.plan.cut import cover

ROWS = 10
BACKENDS = ("onnxruntime", "openvino")


class Reading(nn.Module):
    def __init__(self, how: str) -> None:
        super().__init__()
        self.how = how
        self.table = nn.Embedding(ROWS, 4)
        self.register_buffer("rows", torch.randn(ROWS, 4))
        self.rows: Tensor

    def forward(self, ids: Tensor) -> Tensor:
        flat = ids.reshape(-1)
        ways = {
            "as given": lambda: self.table(ids),
            "computed": lambda: self.table(ids + 1),
            "converted": lambda: self.table(ids.int().long()),
            "running": lambda: self.table(ids.cumsum(1) - 1),
            "indexed": lambda: self.rows[ids],
            "selected": lambda: self.rows.index_select(0, flat),
            "gathered": lambda: self.rows.gather(0, flat[:, None].expand(-1, 4)),
            "counted": lambda: self.table(torch.arange(ids.shape[1])) + ids[..., None],
        }
        return torch.relu(ways[self.how]())


def outcome(call: Any, ids: Tensor) -> Any:
    try:
        return call(ids)
    except Exception as error:  # whatever the model raises is what is expected
        return type(error)


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize(
    "how",
    ["as given", "computed", "converted", "running", "indexed", "selected", "gathered", "counted"],
)
def test_a_wrong_index_is_refused_as_by_the_model(how: str, backend: str) -> None:
    model, fine = Reading(how).eval(), torch.tensor([[1, 1, 0, 1]])
    with gearshift.adapt(model, (fine,)) as runtime, torch.no_grad():
        runnable = runtime.space.runnable[backend]
        rewrite = Rewrite(backend=backend, threads=1)
        plan = cover(runtime.program.graph, runnable, rewrite)
        runtime.swap(plan)
        too_long = torch.zeros(1, 4 * ROWS, dtype=torch.int64)
        for ids in (fine, fine - 3, fine + 50, too_long, fine[:, :0], fine):
            for _ in range(4):
                got, expected = outcome(runtime, ids), outcome(model, ids)
                if isinstance(expected, Tensor):
                    torch.testing.assert_close(got, expected)
                else:
                    assert got is expected
            assert runtime.settle(60)
        assert runtime.plan == plan, "the user's mistake is nobody's fault"


def test_an_index_too_dear_to_know_beforehand_stays_with_the_model() -> None:
    class Chosen(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.score, self.table = nn.Linear(8, 20), nn.Embedding(20, 4)

        def forward(self, x: Tensor) -> Tensor:
            return self.table(self.score(x).argmax(-1))

    with gearshift.adapt(Chosen().eval(), torch.randn(3, 8)) as runtime:
        runnable = runtime.space.runnable["onnxruntime"]
        assert "embedding" not in runnable
        assert "argmax" in runnable
