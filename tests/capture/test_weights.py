"""What is noticed of a module between two calls, however calm it was before."""

import pytest
import torch
from torch import nn

from gearshift.capture import weights
from gearshift.capture.weights import WeightWatch


def watched() -> tuple[nn.Sequential, WeightWatch]:
    model = nn.Sequential(nn.Linear(4, 4), nn.ReLU(), nn.Sequential()).eval()
    slots = [(m._parameters, name) for m in model.modules() for name in m._parameters]
    return model, WeightWatch(slots, list(model.modules()))


@pytest.mark.parametrize("calm", [True, False])
def test_a_hook_is_noticed_whether_or_not_hooks_were_looked_at_lately(
    calm: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(weights, "IN_PLACE_S", -1.0 if calm else 1e9)
    model, watch = watched()
    for _ in range(3):
        assert watch.unchanged()
    handle = model[1].register_forward_hook(lambda *_: None)
    assert not watch.unchanged()
    handle.remove()
    assert watch.unchanged()


def test_a_hook_elsewhere_is_no_change_here(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(weights, "IN_PLACE_S", -1.0)
    _, watch = watched()
    assert watch.unchanged()
    nn.Linear(2, 2).register_forward_hook(lambda *_: None)
    assert watch.unchanged()


def test_a_number_given_before_its_hook_is_in_place_does_not_hide_it() -> None:
    """As another thread would see it in between."""
    model, watch = watched()
    assert watch.unchanged()
    handle = torch.utils.hooks.RemovableHandle(model[0]._forward_hooks)
    assert watch.unchanged(), "nothing is there yet"
    model[0]._forward_hooks[handle.id] = lambda *_: None
    assert not watch.unchanged()


def test_a_module_put_into_an_empty_one_is_noticed() -> None:
    model, watch = watched()
    model[2].append(nn.ReLU())
    assert not watch.unchanged()
