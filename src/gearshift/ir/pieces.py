"""Regions within regions, as whoever cuts must know them: what each is, how much work, what goes in
and out.

Must not know what is decided about any of them.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from math import ceil
from typing import Any

from gearshift.ir.graph import Graph
from gearshift.ir.hierarchy import Branch, hierarchy
from gearshift.ir.region import boundary, identity
from gearshift.ir.work import Size, Work, heaviest, value_bytes, work_of

MAX_PIECES = 400
"""More would take longer to look through than it could gain."""
MAX_PARTS = 24
"""Nothing falls into more at once: it would take too long to measure them all."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Piece:
    """Ops that could be one region, and what they fall into."""

    name: str
    ops: tuple[str, ...]
    identity: str
    kind: str
    """Of the op that most of its arithmetic is in."""
    work: Work
    read_bytes: int
    """From other ops than its own,"""
    made_bytes: int
    """and for them."""
    backends: tuple[str, ...]
    """Those that can run all of it."""
    children: tuple["Piece", ...] = ()

    def walk(self) -> Iterator["Piece"]:
        yield self
        for child in self.children:
            yield from child.walk()


def pieces_of(
    graph: Graph, size: Size, runnable: Mapping[str, frozenset[str]], depth: int
) -> Piece | None:
    """So many levels deep, or fewer where they would be too many. None for a model captured in
    several fragments. Raises ValueError if a size is not known."""
    branches = hierarchy(graph)
    if len(branches) != 1:
        return None
    root = in_few(branches[0])
    while depth > 0 and sum(1 for _ in root.walk(depth)) > MAX_PIECES:
        depth -= 1

    def piece(branch: Branch, levels: int) -> Piece:
        edge = boundary(graph, branch.ops)
        own = frozenset(branch.ops)
        return Piece(
            name=branch.name,
            ops=branch.ops,
            identity=identity(graph, branch.ops),
            kind=heaviest(graph, size, branch.ops).kind,
            work=work_of(graph, branch.ops, size),
            read_bytes=value_bytes(graph, edge.inputs, size),
            made_bytes=value_bytes(graph, edge.outputs, size),
            backends=tuple(name for name, ops in runnable.items() if own <= ops),
            children=tuple(piece(c, levels - 1) for c in branch.children) if levels else (),
        )

    return piece(root, depth)


def in_few(branch: Branch) -> Branch:
    """Where it falls into very many, some in a row are one in between, and so on below."""
    children = tuple(map(in_few, branch.children))
    while len(children) > MAX_PARTS:
        length = ceil(len(children) / ceil(len(children) / MAX_PARTS))
        starts = range(0, len(children), length)
        children = tuple(_together(children[start : start + length]) for start in starts)
    return replace(branch, children=children)


def _together(some: tuple[Branch, ...]) -> Branch:
    name = f"{some[0].name} to {some[-1].name}"
    ops = tuple(op for branch in some for op in branch.ops)
    return some[0] if len(some) == 1 else Branch(name=name, ops=ops, children=some)


def to_data(piece: Piece) -> dict[str, Any]:
    return asdict(piece)


def from_data(data: Mapping[str, Any]) -> Piece:
    changed: dict[str, Callable[[Any], Any]] = {
        "ops": tuple,
        "backends": tuple,
        "work": lambda work: Work(**work),
        "children": lambda children: tuple(map(from_data, children)),
    }
    return Piece(**{name: changed.get(name, _as_is)(value) for name, value in data.items()})


def _as_is(value: Any) -> Any:
    return value


def cover(root: Piece, ops: Sequence[str]) -> list[Piece] | None:
    """The fewest pieces that make up just these ops, in order; None if there are none such."""
    wanted = frozenset(ops)
    if wanted == frozenset(root.ops):
        return [root]
    found: list[Piece] = []
    for child in root.children:
        inside = wanted.intersection(child.ops)
        below = cover(child, tuple(inside)) if inside else []
        if below is None:
            return None
        found += below
    return found if sum(len(piece.ops) for piece in found) == len(wanted) else None
