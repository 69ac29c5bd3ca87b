"""Checks made before a call: that no index is one the model would refuse.

Must not know which backend would answer instead.
"""

from collections.abc import Callable, Collection, Mapping, Sequence
from operator import itemgetter
from typing import Any

import torch
from torch import Tensor

from gearshift.act.steps import IndexCheck
from gearshift.capture.program import Fragment, Lookup, size_number

Read = Callable[[list[Any]], Tensor]


def index_checks(
    fragment: Fragment, ops: Collection[str], home: Mapping[str, int], leaves: Sequence[Any]
) -> tuple[IndexCheck, ...]:
    """For what these ops read; what depends on sizes alone is looked at here and now."""
    bound = fragment.sizes.bind(leaves)
    sizes = fragment.size_numbers(bound)
    checks: dict[tuple[str, int], IndexCheck] = {}
    for lookup in fragment.lookups:
        if lookup.op not in ops or not lookup.cheap(fragment.graph):
            continue
        size = size_number(str(lookup.size), bound)
        read, constant = _reader(fragment, lookup, home, sizes)
        check = IndexCheck(read, 0, size)
        if not constant or not check.passes([]):
            checks[lookup.index, size] = check
    return tuple(checks.values())


def _reader(
    fragment: Fragment, lookup: Lookup, home: Mapping[str, int], sizes: Mapping[str, int]
) -> tuple[Read, bool]:
    """How to get at the index, and whether it is the same whatever the inputs hold."""
    if not lookup.made_by:
        return itemgetter(home[lookup.index]), False
    assert fragment.fx is not None
    cut = fragment.fx.cut(lookup.made_by, sizes)
    reads = tuple(home[name] for name in cut.inputs)
    weights = [fragment.weights[name] for name in cut.weights]
    position = cut.outputs.index(lookup.index)

    def read(values: list[Any]) -> Tensor:
        with torch.no_grad():
            results = cut.body(*[values[i] for i in reads], *weights)
        index: Tensor = results[position]
        return index

    return read, not reads


def range_checks(
    fragment: Fragment, limits: Mapping[str, int], home: Mapping[str, int]
) -> tuple[IndexCheck, ...]:
    """`limits`: for some ops, the size of whole numbers up to which they are exact."""
    smallest: dict[str, int] = {}
    for op in fragment.graph.ops:
        for operand in op.operands if op.name in limits else ():
            smallest[operand] = min(limits[op.name], smallest.get(operand, limits[op.name]))
    return tuple(
        IndexCheck(itemgetter(home[value.name]), -smallest[value.name], smallest[value.name])
        for value in fragment.graph.inputs
        if value.name in smallest and value.dtype == "int64"
    )
