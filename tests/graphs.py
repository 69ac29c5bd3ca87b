"""Small graphs made by hand, and a machine to plan them on.
Knows ir and plan only: whatever is tested with these needs no torch.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from gearshift.ir.graph import Graph, Op, Value
from gearshift.plan import Plan, Region, Rewrite, Space
from gearshift.plan.plan import ordered
from gearshift.plan.rewrite import EAGER

ORT_1 = Rewrite(backend="onnxruntime", threads=1)
ORT_2 = Rewrite(backend="onnxruntime", threads=2)
OPENVINO = Rewrite(backend="openvino")
SHAPE = ("batch", 8)


def op(name: str, *operands: str, form: str = "", outputs: Sequence[str] = (), **more: Any) -> Op:
    """An op that makes one value of its own name, unless told otherwise."""
    slots = ", ".join(f"%{index}" for index in range(len(operands)))
    return Op(
        name=name,
        kind="other",
        form=form or f"f({slots})",
        operands=operands,
        outputs=tuple(outputs) or (name,),
        **more,
    )


def graph(
    *ops: Op,
    outputs: Sequence[str],
    inputs: Sequence[str] = ("x",),
    weights: Sequence[str] = (),
    shapes: Mapping[str, tuple[int | str, ...]] | None = None,
) -> Graph:
    def values(names: Iterable[str]) -> tuple[Value, ...]:
        return tuple(
            Value(name=n, dtype="float32", shape=(shapes or {}).get(n, SHAPE)) for n in names
        )

    return Graph(
        inputs=values(inputs),
        weights=values(weights),
        ops=ops,
        results=values(out for one in ops for out in one.outputs),
        outputs=tuple(outputs),
    )


def chain() -> Graph:
    """x -> a -> b -> c -> d; a, b in module `first`, c, d in `second.inner`; a and c weighted."""
    return graph(
        op("a", "x", "w_a", scope="first"),
        op("b", "a", scope="first"),
        op("c", "b", "w_c", scope="second.inner"),
        op("d", "c", scope="second.inner"),
        weights=("w_a", "w_c"),
        outputs=("d",),
    )


def diamond() -> Graph:
    """x -> top -> left and right -> bottom."""
    return graph(
        op("top", "x"),
        op("left", "top"),
        op("right", "top"),
        op("bottom", "left", "right"),
        outputs=("bottom",),
    )


def two_branches() -> Graph:
    """x -> x1 -> x2 and y -> y1 -> y2, which never meet."""
    return graph(
        op("x1", "x"),
        op("y1", "y"),
        op("x2", "x1"),
        op("y2", "y1"),
        inputs=("x", "y"),
        outputs=("x2", "y2"),
    )


def two_fragments() -> Graph:
    """Two parts of a model with Python between them."""
    return graph(
        op("one/a", "x", fragment="one"),
        op("one/b", "one/a", fragment="one"),
        op("two/a", "y", fragment="two"),
        op("two/b", "two/a", fragment="two"),
        inputs=("x", "y"),
        outputs=("one/b", "two/b"),
    )


GRAPHS = {
    "chain": chain(),
    "diamond": diamond(),
    "two branches": two_branches(),
    "two fragments": two_fragments(),
}


def plan(graph: Graph, *regions: str, **settings: Any) -> Plan:
    """Regions written as the names of their ops with blanks between; all get the same settings."""
    return ordered(graph, tuple(Region(ops=tuple(names.split()), **settings) for names in regions))


def space(graph: Graph, **changes: Any) -> Space:
    """Three engines and three backends, of which each can run everything."""
    everything = frozenset(one.name for one in graph.ops)
    given: dict[str, Any] = {
        "engines": ("caller", "cpu:0", "cpu:1"),
        "rewrites": (EAGER, ORT_1, ORT_2, OPENVINO),
        "runnable": dict.fromkeys(("eager", "onnxruntime", "openvino"), everything),
        "settings": {
            "eager": frozenset(),
            "onnxruntime": frozenset({"threads", "spin"}),
            "openvino": frozenset({"threads"}),
        },
        "max_threads": 2,
    }
    return Space(graph=graph, **{**given, **changes})
