"""Regions within regions. Knows hand-made graphs only."""

from collections.abc import Callable

import pytest

from gearshift.ir.graph import Graph
from gearshift.ir.hierarchy import Branch, hierarchy
from gearshift.ir.region import is_convex
from tests.graphs import chain, diamond, graph, op, two_fragments


def nested() -> Graph:
    """A stem, and a block with a branch around its inner layers."""
    return graph(
        op("a", "x", scope="net.stem"),
        op("b", "a", scope="net.block.left"),
        op("c", "b", scope="net.block.left"),
        op("d", "c", "a", scope="net.block"),
        op("e", "d", scope="net.block"),
        outputs=("e",),
    )


def told(branch: Branch) -> str:
    inner = " ".join(map(told, branch.children))
    return f"{branch.name}({inner})" if inner else branch.name


def test_it_follows_the_modules_then_the_data() -> None:
    (root,) = hierarchy(nested())
    assert told(root) == "net(net.stem net.block(net.block.left(b c) d(d e)))"


@pytest.mark.capability("region.hierarchy")
@pytest.mark.parametrize(
    ("depth", "regions"),
    [
        (0, ["a b c d e"]),
        (1, ["a", "b c d e"]),
        (2, ["a", "b c", "d e"]),
        (3, ["a", "b", "c", "d", "e"]),
        (9, ["a", "b", "c", "d", "e"]),
    ],
)
def test_depth_sets_how_fine_regions_are(depth: int, regions: list[str]) -> None:
    (root,) = hierarchy(nested())
    assert [" ".join(branch.ops) for branch in root.at(depth)] == regions


def test_without_modules_it_is_cut_where_one_value_goes_on() -> None:
    line = graph(
        op("a", "x"),
        op("b", "a"),
        op("c", "a", "b"),
        op("d", "c", "w"),
        op("e", "d", "c"),
        weights=("w",),
        outputs=("e",),
    )
    (root,) = hierarchy(line)
    assert root.name == "the whole model"
    assert [" ".join(branch.ops) for branch in root.at(1)] == ["a", "b c", "d e"]


@pytest.mark.parametrize("make", [chain, diamond, nested, two_fragments])
@pytest.mark.parametrize("depth", range(5))
def test_at_any_depth_regions_are_convex_and_have_every_op_once(
    make: Callable[[], Graph], depth: int
) -> None:
    made = make()
    branches = [branch for root in hierarchy(made) for branch in root.at(depth)]
    assert [o for branch in branches for o in branch.ops] == [o.name for o in made.ops]
    assert all(is_convex(made, branch.ops) for branch in branches)


def test_walking_tells_the_level() -> None:
    (root,) = hierarchy(nested())
    assert [(level, branch.name) for level, branch in root.walk(1)] == [
        (0, "net"),
        (1, "net.stem"),
        (1, "net.block"),
    ]
