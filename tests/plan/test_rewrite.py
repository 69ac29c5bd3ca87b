"""The knob `rewrite`: a region takes any setting its backend heeds, if that can run its ops.
Knows hand-made graphs only.
"""

from dataclasses import replace

import pytest

from gearshift.plan import Rewrite
from gearshift.plan.rewrite import EAGER, SetRewrite, moves, why_illegal
from tests.graphs import OPENVINO, ORT_1, ORT_2, chain, plan, space


def test_a_rewrite_changes_one_region_and_leaves_the_rest() -> None:
    before = plan(chain(), "a b", "c d", engine="cpu:0")
    after = SetRewrite(region="c", rewrite=ORT_2).apply(before, chain())
    assert [region.rewrite for region in after.regions] == [EAGER, ORT_2]
    assert [(region.ops, region.engine) for region in after.regions] == [
        (("a", "b"), "cpu:0"),
        (("c", "d"), "cpu:0"),
    ]


def test_setting_it_back_undoes_it() -> None:
    before = plan(chain(), "a b c d", rewrite=OPENVINO)
    after = SetRewrite(region="a", rewrite=ORT_1).apply(before, chain())
    assert after != before
    assert SetRewrite(region="a", rewrite=OPENVINO).apply(after, chain()) == before


def test_moves_offer_every_setting_but_the_one_in_use() -> None:
    offered = list(moves(plan(chain(), "a b c d", rewrite=ORT_1), space(chain())))
    assert offered == [SetRewrite(region="a", rewrite=r) for r in (EAGER, ORT_2, OPENVINO)]


@pytest.mark.parametrize(
    ("rewrite", "text"),
    [
        (EAGER, "eager"),
        (ORT_2, "onnxruntime x2"),
        (replace(ORT_1, spin=True), "onnxruntime x1 spin"),
    ],
)
def test_a_rewrite_prints_what_was_set(rewrite: Rewrite, text: str) -> None:
    assert str(rewrite) == text


@pytest.mark.parametrize(
    ("rewrite", "parts"),
    [
        (Rewrite(backend="tensorrt"), ["'tensorrt'", "eager, onnxruntime, openvino"]),
        (Rewrite(backend="eager", threads=1), ["eager", "'threads'"]),
        (Rewrite(backend="openvino", spin=True), ["openvino", "'spin'"]),
        (replace(ORT_1, threads=0), ["threads=0", "1 to 2"]),
        (replace(ORT_1, threads=3), ["threads=3", "1 to 2"]),
    ],
)
def test_what_a_backend_cannot_do_is_refused_by_name(rewrite: Rewrite, parts: list[str]) -> None:
    wrong = SetRewrite(region="c", rewrite=rewrite).apply(plan(chain(), "a b", "c d"), chain())
    reason = why_illegal(wrong, space(chain()))
    assert reason is not None
    for part in ("region c", *parts):
        assert part in reason


@pytest.mark.parametrize("rewrite", [EAGER, ORT_1, ORT_2, OPENVINO, replace(ORT_2, spin=True)])
def test_what_a_backend_heeds_is_legal(rewrite: Rewrite) -> None:
    assert why_illegal(plan(chain(), "a b c d", rewrite=rewrite), space(chain())) is None


def test_ops_a_backend_cannot_run_are_named() -> None:
    machine = space(chain())
    machine = replace(machine, runnable={**machine.runnable, "openvino": frozenset("abc")})
    assert why_illegal(plan(chain(), "a b c", "d", rewrite=ORT_1), machine) is None
    reason = why_illegal(plan(chain(), "a b", "c d", rewrite=OPENVINO), machine)
    assert reason == "region c: openvino cannot run d"


def test_of_many_ops_a_backend_cannot_run_a_few_are_named() -> None:
    machine = space(chain())
    machine = replace(machine, runnable={**machine.runnable, "openvino": frozenset()})
    reason = why_illegal(plan(chain(), "a b c d", rewrite=OPENVINO), machine)
    assert reason == "region a: openvino cannot run a, b, c and 1 more"
