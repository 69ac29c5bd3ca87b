"""Plans are values: the same decisions are the same plan, however they were written down.
Knows hand-made graphs only.
"""

from dataclasses import FrozenInstanceError, replace

import pytest

from gearshift.plan import Plan, Region, Rewrite
from gearshift.plan.plan import ordered, whole
from tests.graphs import GRAPHS, ORT_1, chain, plan, two_fragments


def test_whole_is_one_region_per_fragment_on_the_callers_thread() -> None:
    (only,) = whole(chain()).regions
    assert only == Region(ops=("a", "b", "c", "d"), engine="caller", rewrite=Rewrite())
    ops = [region.ops for region in whole(two_fragments()).regions]
    assert ops == [("one/a", "one/b"), ("two/a", "two/b")]


def test_whole_takes_settings() -> None:
    regions = whole(two_fragments(), engine="cpu:1", rewrite=ORT_1).regions
    assert {(region.engine, region.rewrite) for region in regions} == {("cpu:1", ORT_1)}


def test_the_order_in_which_a_plan_is_written_does_not_matter() -> None:
    tidy = ordered(chain(), (Region(ops=("a", "b")), Region(ops=("c", "d"), engine="cpu:0")))
    untidy = ordered(chain(), (Region(ops=("d", "c"), engine="cpu:0"), Region(ops=("b", "a"))))
    assert untidy == tidy
    assert hash(untidy) == hash(tidy)
    assert untidy.fingerprint == tidy.fingerprint
    assert [region.ops for region in tidy.regions] == [("a", "b"), ("c", "d")]


@pytest.mark.parametrize(
    "other",
    [
        plan(chain(), "a b c", "d"),
        plan(chain(), "a b", "c d", engine="cpu:0"),
        plan(chain(), "a b", "c d", rewrite=ORT_1),
        plan(chain(), "a b", "c d", rewrite=replace(ORT_1, threads=2)),
        plan(chain(), "a b", "c d", rewrite=replace(ORT_1, spin=True)),
    ],
    ids=["cut", "place", "rewrite", "threads", "spin"],
)
def test_another_decision_is_another_plan_with_another_fingerprint(other: Plan) -> None:
    plain = plan(chain(), "a b", "c d")
    assert other != plain
    assert other.fingerprint != plain.fingerprint


def test_a_plan_cannot_be_changed() -> None:
    with pytest.raises(FrozenInstanceError):
        plan(chain(), "a b c d").regions[0].engine = "cpu:0"  # type: ignore[misc]


def test_a_region_is_found_by_its_first_op() -> None:
    found = plan(chain(), "b a", "c d").region("c")
    assert found.ops == ("c", "d")


def test_exchange_keeps_the_others_and_the_order() -> None:
    old = plan(chain(), "a", "b", "c d")
    new = old.exchange(old.regions[:2], (Region(ops=("b", "a"), engine="cpu:1"),), chain())
    assert new.regions == (Region(ops=("a", "b"), engine="cpu:1"), Region(ops=("c", "d")))


@pytest.mark.parametrize("name", GRAPHS)
def test_whole_names_every_op_once(name: str) -> None:
    graph = GRAPHS[name]
    named = [op for region in whole(graph).regions for op in region.ops]
    assert sorted(named) == sorted(op.name for op in graph.ops)
