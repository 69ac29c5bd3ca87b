"""A call's arguments as a flat list, and results built again, however they are nested."""

from typing import Any

import pytest
import torch
from torch.utils import _pytree as pytree

from gearshift.act.executor import unflattener
from gearshift.capture.calls import call_form

X, H, C = torch.zeros(1), torch.ones(2), torch.ones(3)
NESTED: list[tuple[Any, ...]] = [
    (X, (H, C)),
    ((X, (H,)), C),
    (X, ()),
    (X, [H, C]),
    (X, {"h": H}),
    (X, (H, 2)),
]


@pytest.mark.parametrize("args", NESTED, ids=str)
def test_leaves_are_those_of_the_general_machinery(args: tuple[Any, ...]) -> None:
    form = call_form(None, args, {})
    found = form.leaves(args, {})
    assert found is not None
    assert [id(leaf) for leaf in found] == [id(leaf) for leaf in pytree.tree_leaves(args)]


@pytest.mark.parametrize(
    "other", [(X, H, C), (X, [H, C]), (X, (H,)), (X, (H, (C,))), (X,), (X, (H, C), C)], ids=str
)
def test_what_is_built_otherwise_is_told_apart(other: tuple[Any, ...]) -> None:
    assert call_form(None, (X, (H, C)), {}).leaves(other, {}) is None


@pytest.mark.parametrize("result", [X, (X, H), *NESTED], ids=str)
def test_results_are_built_as_the_models(result: Any) -> None:
    leaves, spec = pytree.tree_flatten(result)
    again = unflattener(spec)(leaves)
    assert type(again) is type(result)
    assert pytree.tree_structure(again) == spec
    assert pytree.tree_leaves(again) == leaves
