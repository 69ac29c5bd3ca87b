"""Whatever may be proposed is legal, and whatever is not legal is refused with its culprit's name.
Knows hand-made graphs only.
"""

from collections.abc import Iterator
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gearshift.errors import PlanError
from gearshift.ir.graph import Graph
from gearshift.plan import Plan, Region, Rewrite, Space, check, legal_moves
from gearshift.plan.cut import Divide, Merge
from gearshift.plan.place import Place
from gearshift.plan.plan import ordered, whole
from gearshift.plan.rewrite import SetRewrite
from tests.graphs import (
    GRAPHS,
    OPENVINO,
    ORT_1,
    ORT_2,
    chain,
    diamond,
    plan,
    space,
    two_branches,
    two_fragments,
)


def narrow(name: str) -> Space:
    """A machine with a backend that misses the last op, and an engine for eager only."""
    machine = space(GRAPHS[name], engine_backends={"cpu:1": frozenset({"eager"})})
    most = frozenset(op.name for op in machine.graph.ops[:-1])
    return replace(machine, runnable={**machine.runnable, "openvino": most})


def walk(machine: Space, picks: list[int]) -> Iterator[Plan]:
    """Plans reached from the whole by legal moves."""
    reached = whole(machine.graph)
    yield reached
    for pick in picks:
        moves = list(legal_moves(reached, machine))
        reached = moves[pick % len(moves)].apply(reached, machine.graph)
        yield reached


calm = settings(deadline=None, derandomize=True, max_examples=30)
walks = given(
    name=st.sampled_from(sorted(GRAPHS)), picks=st.lists(st.integers(0, 10**6), max_size=5)
)


@calm
@walks
def test_every_legal_move_gives_a_legal_plan_in_canonical_form(name: str, picks: list[int]) -> None:
    machine = narrow(name)
    for reached in walk(machine, picks):
        for move in legal_moves(reached, machine):
            moved = move.apply(reached, machine.graph)
            check(moved, machine)
            assert moved != reached, move
            assert ordered(machine.graph, moved.regions) == moved, move


@calm
@walks
def test_a_move_can_be_taken_back_by_a_legal_one(name: str, picks: list[int]) -> None:
    """Not merging, which forgets settings, nor dividing what has no value in common."""
    machine = narrow(name)
    kinds = (Place, SetRewrite, Divide) if name == "chain" else (Place, SetRewrite)
    for reached in walk(machine, picks):
        for move in [m for m in legal_moves(reached, machine) if isinstance(m, kinds)]:
            moved = move.apply(reached, machine.graph)
            after = [back.apply(moved, machine.graph) for back in legal_moves(moved, machine)]
            assert reached in after, move


def test_from_the_whole_every_knob_has_moves() -> None:
    moves = list(legal_moves(whole(chain()), space(chain())))
    assert [m for m in moves if isinstance(m, Divide)] == [
        Divide(region="a", at=at) for at in "bcd"
    ]
    assert [m for m in moves if isinstance(m, Place)] == [
        Place(region="a", engine=engine) for engine in ("cpu:0", "cpu:1")
    ]
    assert [m for m in moves if isinstance(m, SetRewrite)] == [
        SetRewrite(region="a", rewrite=rewrite) for rewrite in (ORT_1, ORT_2, OPENVINO)
    ]
    assert len(moves) == 8


def test_single_ops_can_be_merged_back_into_the_whole() -> None:
    machine = space(diamond())
    reached = plan(diamond(), "top", "left", "right", "bottom")
    while len(reached.regions) > 1:
        merges = [m for m in legal_moves(reached, machine) if isinstance(m, Merge)]
        reached = merges[0].apply(reached, diamond())
    assert reached == whole(diamond())


def test_G3_merging_around_another_region_is_masked_and_refused() -> None:
    machine = space(diamond())
    reached = plan(diamond(), "top left", "right", "bottom")
    around = Merge(region="top", other="bottom")
    assert around not in list(legal_moves(reached, machine))
    assert Merge(region="top", other="right") in list(legal_moves(reached, machine))
    with pytest.raises(PlanError, match="convex"):
        check(around.apply(reached, diamond()), machine)


def test_G3_a_backend_is_masked_until_the_op_it_cannot_run_is_cut_off() -> None:
    machine = narrow("chain")
    move = SetRewrite(region="a", rewrite=OPENVINO)
    reached = whole(chain())
    assert move not in list(legal_moves(reached, machine))
    with pytest.raises(PlanError, match="region a: openvino cannot run d"):
        check(move.apply(reached, chain()), machine)
    divided = Divide(region="a", at="d").apply(reached, chain())
    assert move in list(legal_moves(divided, machine))


def test_G3_an_engine_is_masked_for_backends_it_does_not_host() -> None:
    machine = narrow("chain")
    compiled = whole(chain(), rewrite=ORT_1)
    engines = {m.engine for m in legal_moves(compiled, machine) if isinstance(m, Place)}
    assert engines == {"cpu:0"}
    there = whole(chain(), engine="cpu:1")
    assert not [m for m in legal_moves(there, machine) if isinstance(m, SetRewrite)]


def test_G3_fragments_are_never_offered_for_merging() -> None:
    reached = whole(two_fragments())
    moves = list(legal_moves(reached, space(two_fragments())))
    assert not [m for m in moves if isinstance(m, Merge)]
    joined = Merge(region="one/a", other="two/a").apply(reached, two_fragments())
    with pytest.raises(PlanError, match="region one/a reaches over fragments"):
        check(joined, space(two_fragments()))


ILLEGAL = {
    "unknown op": (Plan(regions=(Region(ops=("a", "b", "c", "d", "ghost")),)), ["ghost"]),
    "op twice": (Plan(regions=(Region(ops=("a", "b")), Region(ops=("b", "c", "d")))), ["b"]),
    "op forgotten": (Plan(regions=(Region(ops=("a", "b", "d")),)), ["c"]),
    "engine": (whole(chain(), engine="cpu:9"), ["region a", "'cpu:9'"]),
    "backend": (whole(chain(), rewrite=Rewrite(backend="magic")), ["region a", "'magic'"]),
    "setting": (whole(chain(), rewrite=Rewrite(threads=1)), ["region a", "'threads'"]),
    "threads": (whole(chain(), rewrite=replace(ORT_1, threads=99)), ["region a", "threads=99"]),
}


@pytest.mark.parametrize("case", ILLEGAL)
def test_G3_an_illegal_plan_is_refused_and_its_culprit_named(case: str) -> None:
    wrong, culprits = ILLEGAL[case]
    with pytest.raises(PlanError, match="not legal here") as caught:
        check(wrong, space(chain()))
    for culprit in culprits:
        assert culprit in str(caught.value)


@pytest.mark.parametrize(
    ("graph", "wrong", "culprits"),
    [
        (two_branches(), plan(two_branches(), "x1 y2", "y1 x2"), ["x1", "y1"]),
        (diamond(), plan(diamond(), "top bottom", "left", "right"), ["top"]),
    ],
    ids=["circle of two", "not convex"],
)
def test_G3_regions_that_wait_for_each_other_are_named(
    graph: Graph, wrong: Plan, culprits: list[str]
) -> None:
    with pytest.raises(PlanError) as caught:
        check(wrong, space(graph))
    for culprit in culprits:
        assert culprit in str(caught.value)
