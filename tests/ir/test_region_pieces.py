"""What regions may be made of. Knows hand-made graphs only."""

import pytest

from gearshift.ir.graph import Graph
from gearshift.ir.hierarchy import hierarchy
from gearshift.ir.pieces import MAX_PARTS, in_few, pieces_of
from gearshift.ir.region import is_convex
from tests.graphs import chain, graph, op


def line(length: int) -> Graph:
    """One op after the other, all of one module."""
    names = [f"o{index}" for index in range(length)]
    ops = [op(name, before) for name, before in zip(names, ("x", *names), strict=False)]
    return graph(*ops, outputs=names[-1:])


@pytest.mark.parametrize("length", [MAX_PARTS + 1, 60, 1000])
def test_very_many_parts_are_taken_together_in_a_row(length: int) -> None:
    made = line(length)
    (root,) = hierarchy(made)
    assert len(root.children) == length
    few = in_few(root)
    branches = [branch for _, branch in few.walk(9)]
    assert all(len(branch.children) <= MAX_PARTS for branch in branches)
    assert len(few.children) >= 2
    for level in range(4):
        assert [name for branch in few.at(level) for name in branch.ops] == list(root.ops)
    assert all(is_convex(made, branch.ops) for branch in few.children)


def test_few_parts_stay_as_they_are() -> None:
    (root,) = hierarchy(chain())
    assert in_few(root) == root


def test_pieces_are_as_few_at_once_and_tell_what_they_are() -> None:
    made = line(60)
    everything = frozenset(one.name for one in made.ops)

    def sized(size: int | str) -> int:
        return 4 if isinstance(size, str) else size

    root = pieces_of(made, sized, {"eager": everything}, 4)
    assert root is not None
    assert [len(piece.children) for piece in root.children] == [20, 20, 20]
    assert root.children[1].name == "o20 to o39"
    assert root.children[1].backends == ("eager",)
    assert root.work.flops == sum(piece.work.flops for piece in root.children)
