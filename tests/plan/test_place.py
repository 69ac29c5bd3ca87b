"""The knob `place`: a region moves to any engine that is here and can run it.
Knows hand-made graphs only.
"""

import pytest

from gearshift.plan import Rewrite
from gearshift.plan.place import Place, moves, why_illegal
from tests.graphs import ORT_1, chain, plan, space


def test_place_moves_one_region_and_leaves_the_rest() -> None:
    before = plan(chain(), "a b", "c d", rewrite=ORT_1)
    after = Place(region="c", engine="cpu:1").apply(before, chain())
    assert [region.engine for region in after.regions] == ["caller", "cpu:1"]
    assert [region.ops for region in after.regions] == [("a", "b"), ("c", "d")]
    assert [region.rewrite for region in after.regions] == [ORT_1, ORT_1]


def test_moving_back_undoes_it() -> None:
    before = plan(chain(), "a b", "c d")
    there = Place(region="a", engine="cpu:0").apply(before, chain())
    assert Place(region="a", engine="caller").apply(there, chain()) == before


def test_moves_offer_every_engine_but_the_one_in_use() -> None:
    offered = list(moves(plan(chain(), "a b", "c d", engine="cpu:0"), space(chain())))
    assert offered == [
        Place(region=region, engine=engine)
        for region in ("a", "c")
        for engine in ("caller", "cpu:1")
    ]


def test_an_engine_that_is_not_here_is_named_with_those_that_are() -> None:
    far = Place(region="c", engine="cuda:7").apply(plan(chain(), "a b", "c d"), chain())
    reason = why_illegal(far, space(chain()))
    assert reason is not None
    for part in ("region c", "cuda:7", "caller", "cpu:0", "cpu:1"):
        assert part in reason


@pytest.mark.parametrize(("backend", "legal"), [("eager", True), ("onnxruntime", False)])
def test_an_engine_runs_only_the_backends_it_hosts(backend: str, legal: bool) -> None:
    machine = space(chain(), engine_backends={"cpu:1": frozenset({"eager", "openvino"})})
    placed = plan(chain(), "a b c d", engine="cpu:1", rewrite=Rewrite(backend=backend))
    reason = why_illegal(placed, machine)
    assert (reason is None) is legal
    if reason is not None:
        for part in ("region a", "cpu:1", "eager, openvino", "not onnxruntime"):
            assert part in reason


def test_engines_nothing_is_said_about_host_every_backend() -> None:
    machine = space(chain(), engine_backends={"cpu:1": frozenset({"eager"})})
    placed = plan(chain(), "a b c d", engine="cpu:0", rewrite=ORT_1)
    assert why_illegal(placed, machine) is None
