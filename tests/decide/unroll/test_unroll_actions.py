"""What may be chosen for a stack of recurrent layers, and what it needs in memory."""

from dataclasses import replace

import numpy as np
import pytest

from gearshift.decide.unroll.actions import (
    ACTIONS,
    CHOICES,
    MAX_LAYERS,
    NAMES,
    STAY,
    applied,
    mask,
    number_of,
)
from gearshift.decide.unroll.constraints import Constraints, Discipline
from gearshift.decide.unroll.view import RAGGED, UnrollView
from gearshift.plan.footprint import Footprint, layer_groups
from gearshift.plan.unroll import AT_ONCE, ROLLED, Steps, choices
from tests.decide.unroll.views import stack, view

BY_4 = Steps(then=4)
MADE_BYTES = 2 * 10 * 2 * 4 * 4
"""Two layers, ten steps, two rows, four units."""
STEP_BYTES = 2 * 4 * 4 * 4
"""The gates of two rows."""


def legal(seen: UnrollView) -> set[str]:
    return {name for name, may in zip(NAMES, mask(seen), strict=True) if may}


def test_there_is_an_action_for_every_layer_and_choice_and_one_to_stay() -> None:
    assert tuple(choices()) == CHOICES
    assert len(ACTIONS) == MAX_LAYERS * len(CHOICES) + 1
    assert len(set(NAMES)) == len(NAMES)
    assert NAMES[STAY] == "stay"
    assert NAMES[number_of(1, BY_4)] == "layer 1 by 4"
    assert NAMES[number_of(0, Steps(first=16, then=1))] == "layer 0 16, then rolled"


def test_an_action_changes_one_layer() -> None:
    settings = (ROLLED, AT_ONCE, BY_4)
    assert applied(settings, number_of(1, BY_4)) == (ROLLED, BY_4, BY_4)
    assert applied(settings, STAY) == settings


def test_layers_that_are_not_there_and_settings_in_force_are_masked() -> None:
    found = legal(view((BY_4, ROLLED)))
    assert len(found) == 2 * (len(CHOICES) - 1) + 1
    assert "layer 0 by 4" not in found
    assert "layer 1 by 4" in found
    assert "layer 1 rolled" not in found
    assert not any(name.startswith("layer 2") for name in found)


def test_whichever_kernel_computes_it_a_setting_in_force_is_masked() -> None:
    assert "layer 0 by 4" not in legal(view((Steps(then=4, kernel="onednn"), ROLLED)))


def test_more_layers_than_there_are_actions_for_are_left_alone() -> None:
    found = mask(view((AT_ONCE,) * (MAX_LAYERS + 2)))
    assert found.shape == (len(ACTIONS),)
    assert found[:STAY].reshape(MAX_LAYERS, -1).any(1).all()


def test_a_layer_keeps_its_setting_for_a_while() -> None:
    seen = view()
    fresh = replace(seen.layers[0], calls_kept=1)
    found = legal(replace(seen, layers=(fresh, seen.layers[1])))
    assert not any(name.startswith("layer 0") for name in found)
    assert any(name.startswith("layer 1") for name in found)


def test_without_a_switch_left_all_stays() -> None:
    assert legal(view(switches_left=0)) == {"stay"}


def test_memory_is_for_what_layers_make_and_for_the_chunks_being_computed() -> None:
    one = view((BY_4, AT_ONCE)).footprint
    assert one.held_bytes((BY_4, AT_ONCE)) == MADE_BYTES + 10 * STEP_BYTES
    team = replace(one, num_engines=2)
    assert team.held_bytes((BY_4, AT_ONCE)) == MADE_BYTES + (4 + 10) * STEP_BYTES
    both_ways = replace(team, stack=stack(num_directions=2))
    turned_bytes = 10 * 2 * (2 * 4 + 4) * 4
    """Of one layer: what both directions of the one before made, and what it makes."""
    assert both_ways.held_bytes((BY_4, BY_4)) == 2 * MADE_BYTES + turned_bytes + 2 * 4 * STEP_BYTES


@pytest.mark.parametrize(
    ("steps", "most"), [(ROLLED, 1), (BY_4, 4), (AT_ONCE, 10), (Steps(first=16, then=1), 10)]
)
def test_no_chunk_is_longer_than_the_sequence(steps: Steps, most: int) -> None:
    assert view().footprint.most_steps(steps) == most


@pytest.mark.parametrize("num_layers", [2, 3, 6])
def test_every_layer_is_on_one_engine(num_layers: int) -> None:
    first, second = layer_groups(stack(num_layers), 2)
    assert [*first, *second] == list(range(num_layers))
    assert abs(len(second) - len(first)) <= 1


@pytest.mark.capability("rnn.constraints")
@pytest.mark.parametrize("inputs", ["uniform", RAGGED])
@pytest.mark.parametrize("num_engines", [1, 2])
@pytest.mark.parametrize("num_directions", [1, 2])
def test_what_is_legal_never_exceeds_the_memory_limit(
    inputs: str, num_engines: int, num_directions: int
) -> None:
    random = np.random.default_rng(0)
    for _ in range(50):
        settings = tuple(CHOICES[i] for i in random.integers(len(CHOICES), size=3))
        seen = view(
            settings,
            stack=stack(3, num_directions=num_directions),
            inputs=inputs,
            num_engines=num_engines,
            num_steps=200,
        )
        needs: Footprint = seen.footprint
        limit = int(needs.held_bytes(settings) * random.uniform(1.0, 1.5))
        may = mask(replace(seen, memory_limit_bytes=limit))
        for action in range(3 * len(CHOICES)):
            after = applied(settings, action)
            fits = needs.held_bytes(after) <= limit
            assert may[action] == (fits and after != settings), (settings, NAMES[action])


def test_beyond_a_limit_that_was_lowered_what_needs_less_is_legal() -> None:
    found = legal(view((AT_ONCE, AT_ONCE), memory_limit_bytes=MADE_BYTES + STEP_BYTES))
    assert "layer 0 rolled" in found
    assert "layer 0 by 8" in found
    assert "layer 0 by 16" not in found, "as long as the sequence"


def test_discipline_counts_calls_and_switches() -> None:
    rules = Constraints(dwell_calls=2, max_switches=2, window_calls=3)
    kept = Discipline(2, rules)
    assert kept.calls_kept == [2, 2]
    kept.switched(1)
    kept.called()
    assert kept.calls_kept == [3, 1]
    kept.switched(0)
    assert kept.switches_left == 0
    kept.called()
    kept.called()
    assert kept.switches_left == 1, "the first was three calls ago"
    assert kept.calls_kept == [2, 3]
