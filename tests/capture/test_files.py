"""Models as files: .onnx and .pt2 are cut, placed and swapped like any other."""

import zipfile
from pathlib import Path

import onnx
import pytest
import torch
from onnx import TensorProto, helper
from torch import nn

import gearshift
from gearshift.errors import InputError, ModelError
from gearshift.plan import Rewrite, loads
from gearshift.plan.cut import Divide
from gearshift.plan.place import Place
from gearshift.plan.plan import whole


def small() -> nn.Module:
    torch.manual_seed(0)
    layers = [nn.Conv2d(3, 8, 3, padding=1), nn.BatchNorm2d(8), nn.ReLU()]
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(2), nn.Flatten(), nn.Linear(32, 4)).eval()


def cut_place_and_compare(runtime: gearshift.Runtime, model: nn.Module) -> None:
    graph = runtime.program.graph
    plan = whole(graph, rewrite=Rewrite(backend="onnxruntime", threads=1))
    middle = graph.ops[len(graph.ops) // 2].name
    plan = Divide(region=graph.ops[0].name, at=middle).apply(plan, graph)
    plan = Place(region=middle, engine="cpu:0").apply(plan, graph)
    runtime.swap(plan)
    with torch.no_grad():
        for rows in (2, 5, 5, 5, 5):
            x = torch.randn(rows, 3, 16, 16)
            torch.testing.assert_close(runtime(x), model(x), rtol=1e-4, atol=1e-5)
            assert runtime.settle(30)
    runtime.swap(whole(graph, rewrite=Rewrite(backend="openvino")))
    x = torch.randn(2, 3, 16, 16)
    torch.testing.assert_close(runtime(x), model(x).detach(), rtol=1e-4, atol=1e-5)


@pytest.mark.capability("core.onnx-model")
def test_an_onnx_file_is_cut_placed_and_swapped(tmp_path: Path) -> None:
    model, path = small(), tmp_path / "a model.onnx"
    sizes = ({0: torch.export.Dim("rows")},)
    x = torch.randn(2, 3, 16, 16)
    torch.onnx.export(model, (x,), path, dynamo=True, dynamic_shapes=sizes, verbose=False)
    with gearshift.adapt(path) as runtime:
        cut_place_and_compare(runtime, model)
        with pytest.raises(InputError, match="float32"):
            runtime(torch.randn(2, 4, 16, 16))
        with pytest.raises(InputError, match="input"):
            runtime()


@pytest.mark.capability("core.onnx-model")
def test_an_onnx_file_with_a_branch_and_a_two_output_op(tmp_path: Path) -> None:
    """Values read inside an If body belong to the region's inputs."""
    branch = [
        helper.make_graph(
            [helper.make_node(op, ["left", "right"], [out])],
            out,
            [],
            [helper.make_tensor_value_info(out, TensorProto.FLOAT, ["rows", 2])],
        )
        for op, out in (("Add", "sum"), ("Sub", "difference"))
    ]
    nodes = [
        helper.make_node("Split", ["x"], ["left", "right"], axis=1, num_outputs=2),
        helper.make_node("ReduceSum", ["x"], ["total"], keepdims=0),
        helper.make_node("Greater", ["total", "zero"], ["positive"]),
        helper.make_node("If", ["positive"], ["y"], then_branch=branch[0], else_branch=branch[1]),
    ]
    zero = helper.make_tensor("zero", TensorProto.FLOAT, [], [0.0])
    graph = helper.make_graph(
        nodes,
        "branching",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["rows", 4])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, ["rows", 2])],
        [zero],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=10)
    onnx.save(model, tmp_path / "branch.onnx")
    with gearshift.adapt(tmp_path / "branch.onnx") as runtime:
        text = '{"schema_version": 1, "regions": [{"ops": ["Split_0"], "rewrite": "onnxruntime"},'
        text += '{"ops": "*", "rewrite": {"backend": "onnxruntime", "threads": 1}}]}'
        runtime.swap(loads(text, runtime.program.graph))
        for sign in (1.0, -1.0):
            x = sign * torch.rand(2, 4)
            left, right = x.chunk(2, 1)
            torch.testing.assert_close(runtime(x), left + sign * right)
        assert runtime.coverage == 1.0


@pytest.mark.capability("core.pt2-model")
def test_a_torch_export_archive_is_cut_placed_and_swapped(tmp_path: Path) -> None:
    model, path = small(), tmp_path / "a model.pt2"
    x = torch.randn(2, 3, 16, 16)
    sizes = ({0: torch.export.Dim.AUTO},)
    torch.export.save(torch.export.export(model, (x,), dynamic_shapes=sizes), path)
    with gearshift.adapt(path) as runtime:
        assert not runtime.program.uncaptured
        cut_place_and_compare(runtime, model)


@pytest.mark.capability("core.pt2-model")
def test_what_has_the_parts_of_an_aotinductor_package_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "compiled.pt2"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("compiled/data/aotinductor/model/model.wrapper.so", b"")
    with pytest.raises(ModelError, match=r"AOTInductor package.*torch\.export\.save"):
        gearshift.adapt(path)


@pytest.mark.soak
def test_an_aotinductor_package_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "compiled.pt2"
    exported = torch.export.export(nn.Linear(2, 2).eval(), (torch.randn(1, 2),))
    torch._inductor.aoti_compile_and_package(exported, package_path=str(path))
    with pytest.raises(ModelError, match=r"AOTInductor package.*torch\.export\.save"):
        gearshift.adapt(path)
