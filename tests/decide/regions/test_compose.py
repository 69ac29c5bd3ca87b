"""The best way to run pieces in a row, found exactly."""

from itertools import pairwise, product

from hypothesis import given
from hypothesis import strategies as st

from gearshift.decide.regions.compose import compose

TIMES = st.dictionaries(st.sampled_from("abc"), st.floats(0.1, 10), min_size=1, max_size=3)


def cost(
    choices: tuple[str, ...],
    alone_s: list[dict[str, float]],
    joined_s: float,
    apart_s: list[float],
) -> float:
    total = sum(piece[entry] for piece, entry in zip(alone_s, choices, strict=True))
    for (first, second), between_s in zip(pairwise(choices), apart_s, strict=True):
        total += -joined_s if first == second else between_s
    return total


@given(st.lists(TIMES, min_size=1, max_size=5), st.floats(-1, 1), st.data())
def test_it_is_as_good_as_trying_everything(
    alone_s: list[dict[str, float]], joined_s: float, data: st.DataObject
) -> None:
    places = len(alone_s) - 1
    apart_s = data.draw(st.lists(st.floats(0, 2), min_size=places, max_size=places))
    found = compose(alone_s, joined_s=joined_s, apart_s=apart_s)
    assert found is not None
    best = min(cost(c, alone_s, joined_s, apart_s) for c in product(*alone_s))
    assert abs(found.seconds - best) < 1e-9
    assert abs(cost(found.choices, alone_s, joined_s, apart_s) - best) < 1e-9


def test_a_boundary_that_costs_more_than_it_gains_is_not_made() -> None:
    alone_s = [{"a": 1.0, "b": 1.5}, {"a": 2.0, "b": 1.5}, {"a": 1.0, "b": 1.5}]
    cheap = compose(alone_s, joined_s=0.0, apart_s=[0.1, 0.1])
    dear = compose(alone_s, joined_s=0.0, apart_s=[0.4, 0.4])
    assert cheap is not None
    assert cheap.choices == ("a", "b", "a")
    assert dear is not None
    assert dear.choices == ("a", "a", "a")


def test_a_boundary_may_cost_more_beside_some_entries() -> None:
    alone_s = [{"a": 1.0, "b": 1.5}, {"a": 2.0, "b": 1.5}, {"a": 1.0, "b": 1.5}]
    found = compose(alone_s, joined_s=0.0, apart_s=[0.1, 0.1], more_s={"b": 0.3})
    assert found is not None
    assert found.choices == ("a", "a", "a")
    elsewhere = compose(alone_s, joined_s=0.0, apart_s=[0.1, 0.1], more_s={"c": 0.3})
    assert elsewhere is not None
    assert elsewhere.choices == ("a", "b", "a")
    assert abs(elsewhere.seconds - 3.7) < 1e-9


def test_what_was_never_measured_is_not_composed() -> None:
    assert compose([{"a": 1.0}, {}], joined_s=0.0, apart_s=[0.1]) is None
