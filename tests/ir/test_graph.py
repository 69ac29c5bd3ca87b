"""A Graph answers who makes and who reads each value.
Knows hand-made graphs only.
"""

import pytest

from gearshift.ir.graph import Value, join_graphs
from tests.graphs import chain, diamond, graph, op, two_branches


def test_every_value_is_found_by_name_whatever_its_role() -> None:
    assert {value.name for value in chain().values.values()} == set("xabcd") | {"w_a", "w_c"}
    assert all(name == value.name for name, value in chain().values.items())


def test_inputs_and_weights_have_no_producer() -> None:
    assert dict(chain().producer) == {"a": "a", "b": "b", "c": "c", "d": "d"}


def test_each_value_of_an_op_with_several_is_made_by_it() -> None:
    parts = graph(op("split", "x", outputs=("low", "high")), op("end", "high"), outputs=("end",))
    assert parts.producer["low"] == parts.producer["high"] == "split"
    assert parts.readers["high"] == ("end",)
    assert "low" not in parts.readers


def test_readers_come_in_graph_order() -> None:
    assert diamond().readers["top"] == ("left", "right")


def test_an_op_that_reads_a_value_twice_is_one_reader() -> None:
    square = graph(op("square", "x", "x"), outputs=("square",))
    assert square.readers["x"] == ("square",)


def test_the_look_ups_cannot_be_changed() -> None:
    for table in (chain().values, chain().by_name, chain().position, chain().producer):
        with pytest.raises(TypeError):
            table["a"] = None  # type: ignore[index]


def test_a_value_prints_its_type_and_shape() -> None:
    assert str(Value(name="x", dtype="float32", shape=("2*s0", 8))) == "float32[2*s0, 8]"


def test_joined_graphs_keep_every_part() -> None:
    joined = join_graphs((chain(), two_branches()))
    assert [one.name for one in joined.ops] == ["a", "b", "c", "d", "x1", "y1", "x2", "y2"]
    assert joined.outputs == ("d", "x2", "y2")
    assert joined.weight_names == {"w_a", "w_c"}
    assert [value.name for value in joined.inputs] == ["x", "x", "y"]
    assert {"d", "y2"} <= set(joined.values)
