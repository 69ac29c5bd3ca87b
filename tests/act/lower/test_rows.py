"""The proof that rows do not mix: what passes it, and what must not."""

import os
from collections.abc import Callable
from pathlib import Path

import onnx
import pytest
import torch
from onnx import TensorProto, helper
from torch import Tensor, nn
from torch.nn import functional as f

import gearshift
from gearshift.act.lower.anatomy import Undivided
from gearshift.act.lower.rows import rows_of
from gearshift.act.verify import error_between
from gearshift.capture.load import capture
from gearshift.ir.topology import team
from gearshift.plan import Rewrite, Split
from gearshift.plan.plan import whole
from gearshift.zoo import ZOO
from tests.act.lower.at_work import at_work


class Of(nn.Module):
    """A model of one function."""

    def __init__(self, function: Callable[..., Tensor]) -> None:
        super().__init__()
        self.function = function
        self.inner = nn.Linear(6, 6)

    def forward(self, x: Tensor) -> Tensor:
        return self.function(self.inner(x))


def rows(model: nn.Module, *inputs: Tensor):  # type: ignore[no-untyped-def]
    fragment = capture(model.eval(), inputs, {}).fragments[0]
    return rows_of(fragment, [op.name for op in fragment.graph.ops])


APART = {
    "softmax": lambda x: x.softmax(-1),
    "mean of a row": lambda x: x - x.mean(-1, keepdim=True),
    "flattened": lambda x: x.unsqueeze(1).expand(-1, 3, -1).reshape(-1, 6).tanh(),
    "transposed": lambda x: x.t().relu().t(),
    "matmul": lambda x: x @ torch.ones(6, 4),
    "batched": lambda x: torch.bmm(x.unsqueeze(2), x.unsqueeze(1)).flatten(1),
    "joined": lambda x: torch.cat([x, x * 2], -1)[:, 2:9],
    "zeros": lambda x: x + torch.zeros(x.shape[0], 1),
    "highest": lambda x: x.argmax(-1).float(),
    "norm": lambda x: f.layer_norm(x, (6,)),
    "attention": lambda x: f.scaled_dot_product_attention(*(x[:, None, None],) * 3).flatten(1),
    "pool": lambda x: f.avg_pool1d(x.unsqueeze(1), 2).flatten(1),
}
MIXED = {
    "mean of all rows": lambda x: x - x.mean(0),
    "sum of all": lambda x: x / x.sum(),
    "softmax over rows": lambda x: x.softmax(0),
    "similarity": lambda x: x @ x.t(),
    "running sum": lambda x: x.cumsum(0),
    "reversed": lambda x: x.flip(0),
    "number of rows": lambda x: x / x.shape[0],
    "number of rows, in steps": lambda x: x / max(1, x.shape[0] // 8),
    "positions": lambda x: x + torch.arange(x.shape[0]).unsqueeze(1),
    "first row": lambda x: x - x[:1],
    "rows in columns": lambda x: x.reshape(6, -1).tanh().reshape(-1, 6),
    "shifted": lambda x: torch.cat([x[1:], x[:1]], 0),
}


@pytest.mark.capability("split.ops")
@pytest.mark.parametrize("name", APART)
def test_rows_that_stay_apart_are_proven_to(name: str) -> None:
    found = rows(Of(APART[name]), torch.randn(4, 6))
    assert found.axes


@pytest.mark.capability("split.ops")
@pytest.mark.parametrize("name", ["batched", "attention", "pool", "norm", "softmax"])
def test_what_stays_apart_is_divided(name: str) -> None:
    model, x = Of(APART[name]).eval(), torch.randn(4, 6)
    cores = sorted(os.sched_getaffinity(0))[:2]
    with gearshift.adapt(model, x, policy="keep") as runtime, torch.no_grad():
        runtime.swap(
            whole(
                runtime.program.graph,
                engine=team([f"cpu:{core}" for core in cores]),
                rewrite=Rewrite(backend="onnxruntime", threads=1),
                split=Split(shares=(3, 1)),
            )
        )
        assert error_between(model(x), runtime(x)) < 1e-5
        assert list(at_work(runtime).values()) == [0.75, 0.25]


@pytest.mark.capability("split.ops")
def test_rows_may_be_in_another_dimension_than_the_first() -> None:
    """Steps first, as recurrent layers have it."""
    model, x = Of(lambda x: x.cumsum(0)).eval(), torch.randn(5, 4, 6)
    axes = rows(model, x).axes
    assert {(axis.index, axis.unit) for axis in axes.values()} == {(1, 1)}
    with gearshift.adapt(model, x, policy="keep") as runtime, torch.no_grad():
        cores = team([f"cpu:{core}" for core in sorted(os.sched_getaffinity(0))[:2]])
        rewrite, split = Rewrite(backend="onnxruntime", threads=1), Split(shares=(3, 1))
        runtime.swap(whole(runtime.program.graph, engine=cores, rewrite=rewrite, split=split))
        assert error_between(model(x), runtime(x)) < 1e-5
        assert list(at_work(runtime).values()) == [0.75, 0.25]


@pytest.mark.parametrize("name", MIXED)
def test_rows_that_mix_are_never_divided(name: str) -> None:
    with pytest.raises(Undivided):
        rows(Of(MIXED[name]), torch.randn(4, 6))


@pytest.mark.parametrize(
    "name", ["mlp", "minilm", "two_tower", pytest.param("resnet18", marks=pytest.mark.soak)]
)
def test_built_in_models_can_be_divided_by_rows(name: str) -> None:
    model, inputs = ZOO[name]()
    assert {axis.unit for axis in rows(model, *inputs).axes.values()} == {1}


@pytest.mark.parametrize(
    ("op", "name", "wide"), [("CumSum", "axis", 6), ("ReduceSum", "axes", 1)], ids=str
)
def test_a_file_that_is_told_in_each_call_along_which_dimension_to_work_is_not_divided(
    op: str, name: str, wide: int, tmp_path: Path
) -> None:
    """In the example, not along the rows."""
    forms = [
        helper.make_tensor_value_info("x", TensorProto.FLOAT, ["rows", 6]),
        helper.make_tensor_value_info(name, TensorProto.INT64, [1]),
        helper.make_tensor_value_info("y", TensorProto.FLOAT, ["rows", wide]),
    ]
    graph = helper.make_graph(
        [helper.make_node(op, ["x", name], ["y"])], "told", forms[:2], forms[2:]
    )
    path = tmp_path / "told.onnx"
    save(graph, path)
    assert "may mix rows" in why_file_is_undivided(path, (torch.randn(4, 6), torch.tensor([1])))


def save(graph: onnx.GraphProto, path: Path) -> None:
    opset = helper.make_opsetid("", 18)
    onnx.save(helper.make_model(graph, opset_imports=[opset], ir_version=10), path)


def why_file_is_undivided(path: Path, args: tuple[torch.Tensor, ...]) -> str:
    with gearshift.adapt(path, args, policy="keep") as runtime:
        cores = team([f"cpu:{core}" for core in sorted(os.sched_getaffinity(0))[:2]])
        rewrite = Rewrite(backend="onnxruntime", threads=1)
        plan = whole(runtime.program.graph, engine=cores, rewrite=rewrite, split=Split())
        return runtime.space.why_undivided(plan.regions[0]) or ""


def test_a_file_that_picks_columns_by_the_number_of_rows_is_not_divided(tmp_path: Path) -> None:
    """`x[:, n - 1 : n]` of n rows."""
    one, columns = helper.make_tensor("one", 7, [1], [1]), helper.make_tensor("axes", 7, [1], [1])
    nodes = [
        helper.make_node("Shape", ["x"], ["n"], start=0, end=1),
        helper.make_node("Sub", ["n", "one"], ["before"]),
        helper.make_node("Slice", ["x", "before", "n", "axes"], ["picked"]),
        helper.make_node("Relu", ["picked"], ["y"]),
    ]
    forms = [
        helper.make_tensor_value_info(name, TensorProto.FLOAT, shape)
        for name, shape in (("x", ["rows", 6]), ("y", ["rows", 1]))
    ]
    graph = helper.make_graph(nodes, "picked", forms[:1], forms[1:], [one, columns])
    path = tmp_path / "picked.onnx"
    save(graph, path)
    assert "the number of rows" in why_file_is_undivided(path, (torch.randn(4, 6),))


def test_a_fixed_batch_is_not_divided() -> None:
    model = Of(lambda x: x.reshape(4, 2, 3).tanh().reshape(4, 6))
    with pytest.raises(Undivided, match="fixed"):
        rows(model, torch.randn(4, 6))
