"""What a set of ops takes and gives, in which order sets can run, and what makes two of them alike.
Knows hand-made graphs; one captured model shows that the real ones behave so.
"""

from dataclasses import replace
from itertools import combinations
from pathlib import Path

import pytest
import torch
from torch import nn

from gearshift.capture.load import capture
from gearshift.ir.graph import Graph
from gearshift.ir.region import boundary, identity, is_convex, run_order
from tests.graphs import GRAPHS, chain, diamond, graph, op, two_branches


def test_a_boundary_tells_inputs_weights_and_outputs_apart() -> None:
    edge = boundary(chain(), ("b", "c"))
    assert (edge.inputs, edge.weights, edge.outputs) == (("a",), ("w_c",), ("c",))


def test_a_value_read_inside_and_outside_leaves_the_region() -> None:
    assert boundary(diamond(), ("top", "left")).outputs == ("top", "left")


def test_a_value_read_only_inside_does_not_leave() -> None:
    assert boundary(diamond(), ("top", "left", "right")).outputs == ("left", "right")


def test_an_output_of_the_model_leaves_even_if_read_inside() -> None:
    both = graph(op("a", "x"), op("b", "a"), outputs=("a", "b"))
    assert boundary(both, ("a", "b")).outputs == ("a", "b")


def test_a_value_taken_twice_is_one_input() -> None:
    assert boundary(diamond(), ("left", "right")).inputs == ("top",)
    square = graph(op("square", "x", "x"), outputs=("square",))
    assert boundary(square, ("square",)).inputs == ("x",)


def test_only_the_values_others_need_leave_an_op_with_several() -> None:
    parts = graph(op("split", "x", outputs=("low", "high")), op("end", "high"), outputs=("end",))
    assert boundary(parts, ("split",)).outputs == ("high",)


def test_regions_run_after_those_they_read_from() -> None:
    assert run_order(chain(), [("c", "d"), ("a",), ("b",)]) == (1, 2, 0)


def test_independent_regions_run_in_graph_order() -> None:
    assert run_order(diamond(), [("bottom",), ("right",), ("left",), ("top",)]) == (3, 2, 1, 0)


def test_two_convex_regions_that_wait_for_each_other_have_no_order() -> None:
    regions = [("x1", "y2"), ("y1", "x2")]
    assert all(is_convex(two_branches(), ops) for ops in regions)
    assert run_order(two_branches(), regions) is None


def test_a_path_that_leaves_a_region_and_comes_back_leaves_no_order() -> None:
    assert run_order(chain(), [("a", "c"), ("b",), ("d",)]) is None


@pytest.mark.parametrize(
    ("ops", "convex"),
    [
        ("top left right bottom", True),
        ("left right", True),
        ("top left right", True),
        ("left right bottom", True),
        ("top bottom", False),
        ("top left bottom", False),
    ],
)
def test_convexity(ops: str, convex: bool) -> None:
    assert is_convex(diamond(), ops.split()) is convex


def test_a_long_way_round_is_seen_too() -> None:
    assert not is_convex(chain(), ("a", "d"))


@pytest.mark.parametrize("name", GRAPHS)
def test_a_set_is_convex_just_if_it_can_run_between_single_ops(name: str) -> None:
    """Two tellings of one truth, compared over every set of ops."""
    whole = GRAPHS[name]
    names = [one.name for one in whole.ops]
    for size in range(1, len(names) + 1):
        for ops in combinations(names, size):
            singles = [(other,) for other in names if other not in ops]
            assert is_convex(whole, ops) == (run_order(whole, [ops, *singles]) is not None), ops


def layers(**second: str) -> Graph:
    """Two layers alike, a1 -> b1 -> a2 -> b2, but for what is said about the second."""
    return graph(
        op("a1", "x", "w1", form="linear(%0, %1)"),
        op("b1", "a1", form="elu(%0, 1.0)"),
        op("a2", "b1", "w2", form=second.get("linear", "linear(%0, %1)")),
        op("b2", "a2", form=second.get("elu", "elu(%0, 1.0)")),
        weights=("w1", "w2"),
        outputs=("b2",),
    )


def test_equal_layers_have_one_identity_whatever_their_names() -> None:
    assert identity(layers(), ("a1", "b1")) == identity(layers(), ("a2", "b2"))


@pytest.mark.parametrize(
    "other",
    [layers(elu="elu(%0, 0.5)"), layers(elu="celu(%0, 1.0)"), layers(linear="linear(%1, %0)")],
    ids=["attribute", "op", "argument order"],
)
def test_another_computation_has_another_identity(other: Graph) -> None:
    assert identity(other, ("a1", "b1")) != identity(other, ("a2", "b2"))


def reshaped(name: str, **changes: object) -> Graph:
    """The two layers with one value of another shape or type."""
    old = layers()
    fields = {
        role: tuple(replace(v, **changes) if v.name == name else v for v in getattr(old, role))
        for role in ("inputs", "weights", "results")
    }
    return replace(old, **fields)


@pytest.mark.parametrize("name", ["x", "w1"])
@pytest.mark.parametrize("change", [{"shape": ("batch", 16)}, {"dtype": "float64"}])
def test_another_shape_or_type_at_the_boundary_gives_another_identity(
    name: str, change: dict[str, object]
) -> None:
    assert identity(reshaped(name, **change), ("a1", "b1")) != identity(layers(), ("a1", "b1"))


def test_a_weight_is_not_an_input_of_the_same_shape() -> None:
    fixed = graph(op("a", "x", "w"), weights=("w",), outputs=("a",))
    given = graph(op("a", "x", "w"), inputs=("x", "w"), outputs=("a",))
    assert identity(fixed, ("a",)) != identity(given, ("a",))


def test_who_reads_whom_is_part_of_the_identity() -> None:
    both = graph(op("a", "x"), op("b", "x"), op("c", "a", "b"), outputs=("c",))
    once = graph(op("a", "x"), op("b", "a"), op("c", "a", "b"), outputs=("c",))
    swapped = graph(op("a", "x"), op("b", "a"), op("c", "b", "a"), outputs=("c",))
    assert len({identity(one, ("a", "b", "c")) for one in (both, once, swapped)}) == 3


def test_what_leaves_a_region_is_part_of_its_identity() -> None:
    last = graph(op("a", "x"), op("b", "a"), outputs=("b",))
    both = graph(op("a", "x"), op("b", "a"), outputs=("a", "b"))
    assert identity(last, ("a", "b")) != identity(both, ("a", "b"))


class Stack(nn.Module):
    """Three equal layers, one of another width, and an end with another activation."""

    def __init__(self, seed: int) -> None:
        super().__init__()
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            self.layers = nn.ModuleList(nn.Linear(8, 8) for _ in range(3))
            self.wide = nn.Linear(8, 12)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for layer in self.layers:
            x = nn.functional.elu(layer(x))
        return nn.functional.elu(self.wide(x), 0.5)


def captured(seed: int) -> Graph:
    return capture(Stack(seed).eval(), torch.ones(2, 8), {}).graph


def test_captured_layers_are_alike_across_places_weights_and_cuts() -> None:
    first, again = captured(seed=1), captured(seed=2)
    names = tuple(one.name for one in first.ops)
    pairs = [names[i : i + 2] for i in range(0, len(names), 2)]
    assert len(pairs) == 4, names
    alike = {identity(first, pair) for pair in pairs[:3]}
    assert len(alike) == 1
    assert identity(first, pairs[3]) not in alike
    assert [identity(again, pair) for pair in pairs] == [identity(first, pair) for pair in pairs]
    assert identity(first, names[2:4]) != identity(first, names[2:5])


def captured_onnx(folder: Path) -> Graph:
    """Relu at 8x8, pooled, Relu at 4x4, then clipped from below, then from above."""
    onnx = pytest.importorskip("onnx")
    pytest.importorskip("onnxruntime")
    text = """
        <ir_version: 9, opset_import: ["" : 18]>
        net (float[n, 3, 8, 8] x) => (float[n, 3, 4, 4] y) <float one = {1.0}>
        {
            [start] start = Neg (x)
            [wide] wide = Relu (start)
            [pool] pooled = MaxPool <kernel_shape = [2, 2], strides = [2, 2]> (wide)
            [small] small = Relu (pooled)
            [floor] floor = Clip (small, one)
            [roof] y = Clip (floor, , one)
        }
    """
    path = folder / "net.onnx"
    onnx.save(onnx.parser.parse_model(text), path)
    return capture(path, None, {}).graph


def test_layers_of_an_onnx_file_at_two_resolutions_are_not_alike(tmp_path: Path) -> None:
    file = captured_onnx(tmp_path)
    assert identity(file, ("wide",)) != identity(file, ("small",))


def test_onnx_ops_given_other_optional_inputs_are_not_alike(tmp_path: Path) -> None:
    file = captured_onnx(tmp_path)
    assert identity(file, ("floor",)) != identity(file, ("roof",))
