"""The knob `cut`: dividing and merging undo each other, and only what can run is legal.
Knows hand-made graphs only.
"""

import pytest

from gearshift.ir.region import identity, is_convex
from gearshift.plan import Plan, Region
from gearshift.plan.cut import Divide, Merge, formed, moves, why_illegal
from gearshift.plan.plan import whole
from tests.graphs import ORT_1, chain, diamond, graph, op, plan, space, two_branches, two_fragments


def ops_of(plan: Plan) -> list[str]:
    return [" ".join(region.ops) for region in plan.regions]


def test_divide_gives_two_regions_with_the_settings_of_the_one() -> None:
    whole_plan = whole(chain(), engine="cpu:1", rewrite=ORT_1)
    divided = Divide(region="a", at="c").apply(whole_plan, chain())
    assert divided == plan(chain(), "a b", "c d", engine="cpu:1", rewrite=ORT_1)


def test_merge_takes_the_settings_of_the_first() -> None:
    first = Region(ops=("a", "b"), engine="cpu:0", rewrite=ORT_1)
    second = Region(ops=("c", "d"), engine="cpu:1")
    merged = Merge(region="a", other="c").apply(Plan(regions=(first, second)), chain())
    (only,) = merged.regions
    assert only == Region(ops=("a", "b", "c", "d"), engine="cpu:0", rewrite=ORT_1)


@pytest.mark.parametrize("at", ["b", "c", "d"])
def test_merge_undoes_divide(at: str) -> None:
    before = whole(chain(), engine="cpu:0", rewrite=ORT_1)
    divided = Divide(region="a", at=at).apply(before, chain())
    assert divided != before
    assert Merge(region="a", other=at).apply(divided, chain()) == before


def test_a_region_can_be_merged_into_a_later_one() -> None:
    merged = Merge(region="c", other="a").apply(plan(chain(), "a b", "c d"), chain())
    assert ops_of(merged) == ["a b c d"]


def test_dividing_elsewhere_keeps_a_regions_identity() -> None:
    before = plan(chain(), "a b", "c d")
    after = Divide(region="a", at="b").apply(before, chain())
    assert ops_of(after) == ["a", "b", "c d"]
    known = [identity(chain(), region.ops) for region in before.regions]
    now = [identity(chain(), region.ops) for region in after.regions]
    assert [one in known for one in now] == [False, False, True]


def test_moves_divide_at_every_op_and_merge_only_neighbours() -> None:
    offered = list(moves(plan(chain(), "a b", "c", "d"), space(chain())))
    assert offered == [
        Divide(region="a", at="b"),
        Merge(region="a", other="c"),
        Merge(region="c", other="d"),
    ]


def test_regions_that_share_nothing_can_be_merged_again() -> None:
    """Or a plan cut between two branches could never come back to one region."""
    offered = list(moves(plan(two_branches(), "x1 x2", "y1 y2"), space(two_branches())))
    assert offered == [
        Divide(region="x1", at="x2"),
        Divide(region="y1", at="y2"),
        Merge(region="x1", other="y1"),
    ]


@pytest.mark.parametrize("cut", [("a b c d",), ("a", "b", "c", "d"), ("a b", "c d")])
def test_cuts_of_a_chain_into_pieces_are_legal(cut: tuple[str, ...]) -> None:
    assert why_illegal(plan(chain(), *cut), space(chain())) is None


def test_a_convex_region_need_not_be_a_range_of_ops() -> None:
    assert why_illegal(plan(two_branches(), "x1 x2", "y1 y2"), space(two_branches())) is None


@pytest.mark.parametrize(
    ("regions", "culprits"),
    [
        ([("a", "b"), ("c", "d", "ghost")], ["unknown op", "ghost"]),
        ([("a", "b"), ("b", "c", "d")], ["more than one region", "b"]),
        ([("a", "b"), ("d",)], ["no region", "c"]),
        ([], ["no region", "a, b, c, d"]),
        ([("a", "b", "c", "d"), ()], ["no ops"]),
    ],
)
def test_each_op_belongs_to_exactly_one_region(
    regions: list[tuple[str, ...]], culprits: list[str]
) -> None:
    wrong = Plan(regions=tuple(Region(ops=ops) for ops in regions))
    reason = why_illegal(wrong, space(chain()))
    assert reason is not None
    for culprit in culprits:
        assert culprit in reason


def test_a_region_that_a_path_leaves_and_reenters_is_illegal() -> None:
    reason = why_illegal(plan(diamond(), "top bottom", "left", "right"), space(diamond()))
    assert reason is not None
    assert "convex" in reason


def test_two_convex_regions_that_wait_for_each_other_are_illegal() -> None:
    reason = why_illegal(plan(two_branches(), "x1 y2", "y1 x2"), space(two_branches()))
    assert reason is not None
    assert "wait for each other" in reason


def test_a_region_over_two_fragments_is_illegal_and_named() -> None:
    joined = plan(two_fragments(), "one/a", "one/b two/a", "two/b")
    reason = why_illegal(joined, space(two_fragments()))
    assert reason is not None
    assert "one/b" in reason
    assert "fragments" in reason


def test_regions_along_the_modules() -> None:
    like = Region(ops=(), engine="cpu:0", rewrite=ORT_1)
    scoped = formed(chain(), granularity=1, like=like)
    assert scoped == plan(chain(), "a b", "c d", engine="cpu:0", rewrite=ORT_1)


def test_depth_says_how_far_down_the_modules() -> None:
    blocks = graph(
        op("a", "x", scope="net.one"),
        op("b", "a", scope="net.two.left"),
        op("c", "b", scope="net.two.right"),
        outputs=("c",),
    )
    cuts = [ops_of(formed(blocks, granularity=depth, like=Region(ops=()))) for depth in range(3)]
    assert cuts == [["a b c"], ["a", "b c"], ["a", "b", "c"]]


def test_a_module_used_twice_becomes_two_regions() -> None:
    again = graph(
        op("a", "x", scope="shared"),
        op("b", "a", scope="other"),
        op("c", "b", scope="shared"),
        outputs=("c",),
    )
    scoped = formed(again, granularity=1, like=Region(ops=()))
    assert ops_of(scoped) == ["a", "b", "c"]
    assert all(is_convex(again, region.ops) for region in scoped.regions)


def test_modules_of_one_name_in_two_fragments_stay_apart() -> None:
    assert ops_of(formed(two_fragments(), granularity=0, like=Region(ops=()))) == [
        "one/a one/b",
        "two/a two/b",
    ]
