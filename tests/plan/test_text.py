"""Plans survive JSON, can be written by hand, and say what is wrong with them.
Knows hand-made graphs only.
"""

import json
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gearshift.errors import PlanError
from gearshift.ir.graph import Graph
from gearshift.plan import Plan, Region, Rewrite, diff, dumps, legal_moves, loads, render
from gearshift.plan.plan import whole
from tests.graphs import (
    GRAPHS,
    OPENVINO,
    ORT_1,
    ORT_2,
    chain,
    graph,
    op,
    plan,
    space,
    two_branches,
)


def written(*regions: Any, graph: Graph | None = None, **more: Any) -> Plan:
    """The plan somebody wrote by hand."""
    text = json.dumps({"schema_version": 1, "regions": list(regions), **more})
    return loads(text, graph or chain())


def test_a_plan_survives_json() -> None:
    kept = Plan(
        regions=(
            Region(ops=("a", "b"), engine="cpu:0", rewrite=replace(ORT_2, spin=True)),
            Region(ops=("c",), engine="cpu:0-1", rewrite=OPENVINO),
            Region(ops=("d",)),
        )
    )
    assert loads(dumps(kept), chain()) == kept
    assert json.loads(dumps(kept))["schema_version"] == 1


@settings(deadline=None, derandomize=True, max_examples=30)
@given(name=st.sampled_from(sorted(GRAPHS)), picks=st.lists(st.integers(0, 10**6), max_size=6))
def test_every_plan_that_can_be_reached_survives_json(name: str, picks: list[int]) -> None:
    machine = space(GRAPHS[name])
    reached = whole(machine.graph)
    for pick in picks:
        moves = list(legal_moves(reached, machine))
        reached = moves[pick % len(moves)].apply(reached, machine.graph)
    again = loads(dumps(reached), machine.graph)
    assert again == reached
    assert again.fingerprint == reached.fingerprint


@pytest.mark.parametrize(
    ("ops", "expected"),
    [
        (["b", "a"], "a b"),
        ("b", "b"),
        (["first"], "a b"),
        (["second"], "c d"),
        (["second.inner"], "c d"),
        (["a..c"], "a b c"),
        (["b .. c"], "b c"),
        (["c..c"], "c"),
        (["a", "first", "a..b"], "a b"),
        (["first", "d"], "a b d"),
    ],
)
def test_ops_are_named_singly_by_module_or_by_range(ops: Any, expected: str) -> None:
    regions = written({"ops": ops, "engine": "cpu:0"}, {"ops": ["*"]}).regions
    named = next(region for region in regions if region.engine == "cpu:0")
    assert " ".join(named.ops) == expected


def test_a_module_path_is_not_taken_for_the_beginning_of_another() -> None:
    alike = graph(op("a", "x", scope="block1"), op("b", "a", scope="block10"), outputs=("b",))
    assert written({"ops": ["block1"]}, graph=alike).regions == (Region(ops=("a",)),)


def test_an_ops_own_name_goes_before_a_modules() -> None:
    alike = graph(op("a", "x", scope="b"), op("b", "a", scope="b"), outputs=("b",))
    assert written({"ops": ["b"]}, graph=alike).regions == (Region(ops=("b",)),)


def test_a_star_is_every_op_no_other_region_names() -> None:
    assert written({"ops": ["*"]}) == whole(chain())
    regions = written({"ops": ["*"], "engine": "cpu:1"}, {"ops": ["b..c"]}).regions
    assert regions == (Region(ops=("a", "d"), engine="cpu:1"), Region(ops=("b", "c")))


def test_a_star_adds_to_the_ops_beside_it() -> None:
    regions = written({"ops": ["a", "*"]}, {"ops": ["b"]}).regions
    assert regions == (Region(ops=("a", "c", "d")), Region(ops=("b",)))


def test_what_is_left_out_is_as_in_a_new_region() -> None:
    assert written({"ops": "*"}) == whole(chain(), engine="caller", rewrite=Rewrite())


@pytest.mark.parametrize(
    ("entry", "rewrite"),
    [
        ("openvino", OPENVINO),
        ({"backend": "onnxruntime", "threads": 1}, ORT_1),
        ({"backend": "onnxruntime", "spin": True}, Rewrite(backend="onnxruntime", spin=True)),
        ({}, Rewrite()),
    ],
)
def test_a_rewrite_is_a_name_or_its_settings(entry: Any, rewrite: Rewrite) -> None:
    assert written({"ops": "*", "rewrite": entry}) == whole(chain(), rewrite=rewrite)


def test_hand_written_regions_come_out_in_graph_order() -> None:
    assert written({"ops": ["second"]}, {"ops": ["first"]}) == plan(chain(), "a b", "c d")


@pytest.mark.parametrize(
    ("text", "parts"),
    [
        ("{", ["not JSON", "line 1"]),
        ("[]", ['"regions"']),
        ("{}", ['"regions"']),
        ('{"schema_version": 1, "regions": {}}', ['"regions"']),
        ('{"regions": []}', ["schema_version", "None", "1"]),
        ('{"schema_version": 2, "regions": []}', ["schema_version", "2", "1"]),
    ],
)
def test_what_is_no_plan_is_refused(text: str, parts: list[str]) -> None:
    with pytest.raises(PlanError) as caught:
        loads(text, chain())
    for part in parts:
        assert part in str(caught.value)


@pytest.mark.parametrize(
    ("region", "parts"),
    [
        ("first", ["a region is an object", "'first'"]),
        ({"ops": "*", "threads": 2}, ["region setting 'threads'", "ops, engine, rewrite"]),
        ({"ops": {"a": 1}}, ["list of names", "{'a': 1}"]),
        ({"ops": ["a", 7]}, ["list of names", "7"]),
        ({"ops": ["ghost"]}, ["'ghost'", "no op, module path or range"]),
        ({"ops": ["a..ghost"]}, ["'a..ghost'", "no op, module path or range"]),
        ({"ops": ["sec"]}, ["'sec'", "no op, module path or range"]),
        ({"ops": "*", "engine": 0}, ["engine", "'cpu:0'", "not 0"]),
        ({"ops": "*", "rewrite": 3}, ["rewrite", "not 3"]),
        ({"ops": "*", "rewrite": {"cores": 1}}, ["rewrite setting 'cores'", "backend, threads"]),
        ({"ops": "*", "rewrite": {"backend": 1}}, ["rewrite.backend", "1"]),
        ({"ops": "*", "rewrite": {"threads": "2"}}, ["rewrite.threads", "'2'"]),
        ({"ops": "*", "rewrite": {"threads": 1.5}}, ["rewrite.threads", "1.5"]),
        ({"ops": "*", "rewrite": {"threads": True}}, ["rewrite.threads", "True"]),
        ({"ops": "*", "rewrite": {"spin": 1}}, ["rewrite.spin", "1"]),
        ({"ops": []}, ["empty", "'*'"]),
        ({"engine": "cpu:0"}, ["empty", "'*'"]),
    ],
)
def test_what_is_wrong_with_a_region_is_said(region: Any, parts: list[str]) -> None:
    with pytest.raises(PlanError) as caught:
        written(region)
    for part in parts:
        assert part in str(caught.value)


def test_a_range_the_wrong_way_round_is_refused() -> None:
    with pytest.raises(PlanError, match=r"c\.\.a"):
        written({"ops": ["c..a", "d"]}, {"ops": "*"})


@pytest.mark.parametrize("text", ["[" * 100_000, "1" * 5000], ids=["too deep", "too long a number"])
def test_text_that_json_gives_up_on_is_refused(text: str) -> None:
    with pytest.raises(PlanError):
        loads(text, chain())


def test_a_star_with_nothing_left_is_refused() -> None:
    with pytest.raises(PlanError, match="empty"):
        written({"ops": ["a..d"]}, {"ops": ["*"]})


def test_rendering_shows_every_region_with_engine_rewrite_and_modules() -> None:
    shown = Plan(
        regions=(
            Region(ops=("a", "b"), engine="cpu:0", rewrite=ORT_2),
            Region(ops=("c",)),
            Region(ops=("d",)),
        )
    )
    title, first, second, third = render(shown, chain()).splitlines()
    assert title == f"plan {shown.fingerprint}: 3 regions"
    assert " ".join(first.split()) == "cpu:0 onnxruntime x2 2 ops a..b (first)"
    assert " ".join(second.split()) == "caller eager 1 ops c (second)"
    assert " ".join(third.split()) == "caller eager 1 ops d (second)"
    assert first.index("ops") == second.index("ops"), "the columns stand under each other"


def test_rendering_of_one_region_and_of_ops_without_a_module() -> None:
    title, line = render(plan(two_branches(), "x1 y1 x2 y2"), two_branches()).splitlines()
    assert title.endswith("1 region")
    assert line.split()[-1] == "x1..y2"


def test_rendering_names_a_few_of_many_modules() -> None:
    ops = [op(f"o{i}", f"o{i - 1}" if i else "x", scope=f"block{i}.relu") for i in range(6)]
    many = graph(*ops, outputs=("o5",))
    assert render(whole(many), many).endswith("o0..o5  (block0, block1, block2, block3, ...)")


def test_equal_plans_do_not_differ() -> None:
    assert diff(plan(chain(), "a b", "c d"), plan(chain(), "c d", "a b")) == ""


def test_a_diff_shows_only_the_regions_that_changed() -> None:
    old = plan(chain(), "a b", "c d")
    new = plan(chain(), "a b", "c", "d", engine="caller")
    assert diff(old, new).splitlines() == [
        "- c..d (2 ops) on caller, eager",
        "+ c (1 ops) on caller, eager",
        "+ d (1 ops) on caller, eager",
    ]


@pytest.mark.parametrize(
    ("settings", "line"),
    [
        ({"engine": "cpu:1"}, "+ a..d (4 ops) on cpu:1, eager"),
        ({"rewrite": ORT_1}, "+ a..d (4 ops) on caller, onnxruntime x1"),
    ],
)
def test_a_diff_shows_changed_settings(settings: dict[str, Any], line: str) -> None:
    lines = diff(whole(chain()), whole(chain(), **settings)).splitlines()
    assert lines == ["- a..d (4 ops) on caller, eager", line]
