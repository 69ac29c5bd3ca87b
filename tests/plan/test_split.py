"""The knob split: what is legal, what moves there are, how it reads and is written."""

from dataclasses import replace
from functools import partial

import pytest

from gearshift.errors import PlanError
from gearshift.ir.topology import members
from gearshift.plan import Region, Split, dumps, loads
from gearshift.plan.legal import candidates, legal_moves, why_illegal
from gearshift.plan.place import Place
from gearshift.plan.plan import whole
from gearshift.plan.split import SetSplit, apportioned, as_far_as_legal
from gearshift.plan.text import plain, to_data
from tests.graphs import ORT_1, ORT_2, chain, plan, space

TEAM = "cpu:0+cpu:1"
EVERYTHING = "a b c d"


def dividable(**changes):  # type: ignore[no-untyped-def]
    given = {"why_undivided": lambda region: None, "usable_cores": 2, **changes}
    return space(chain(), **given)


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"engine": TEAM}, ["team", "in parts"]),
        ({"engine": "cpu:0", "split": Split()}, ["team such as cpu:0+cpu:1", "cpu:0"]),
        ({"engine": TEAM, "split": Split(how="diagonal")}, ["'diagonal'", "rows"]),
        ({"engine": TEAM, "split": Split(shares=(1,))}, ["1 shares for 2 engines"]),
        ({"engine": TEAM, "split": Split(shares=(0, 0))}, ["not all 0"]),
        ({"engine": TEAM, "split": Split(shares=(3, -1))}, ["from 0"]),
        ({"engine": TEAM, "split": Split(shares=(10**9, 1))}, ["to 1000"]),
        ({"engine": TEAM, "split": Split(how="interleaved", shares=(1, 1))}, ["no shares"]),
        ({"engine": "cpu:0+cpu:7", "split": Split()}, ["no engine 'cpu:7'"]),
        ({"engine": "cpu:0+cpu:0", "split": Split()}, ["twice"]),
        ({"engine": TEAM, "split": Split(shares=[1, 1])}, ["split="]),  # type: ignore[arg-type]
        ({"engine": TEAM, "split": "rows"}, ["split='rows'"]),
    ],
)
def test_what_is_not_legal_is_told(settings: dict[str, object], words: list[str]) -> None:
    reason = why_illegal(plan(chain(), EVERYTHING, rewrite=ORT_1, **settings), dividable())
    assert reason is not None
    assert all(word in reason for word in words)


def test_what_is_not_proven_is_refused() -> None:
    divided = plan(chain(), EVERYTHING, engine=TEAM, rewrite=ORT_1, split=Split())
    assert why_illegal(divided, dividable()) is None
    reason = why_illegal(divided, space(chain()))
    assert reason is not None
    assert "not proven" in reason


def test_moves_lead_to_splits_and_back() -> None:
    start = plan(chain(), EVERYTHING, rewrite=ORT_1)
    moves = [m for m in legal_moves(start, dividable()) if isinstance(m, SetSplit)]
    reached = {str(move.apply(start, chain()).regions[0].split) for move in moves}
    assert {"rows", "rows 1:1", "rows 2:1", "rows 1:3", "interleaved"} <= reached
    divided = moves[0].apply(start, chain())
    back = [m for m in legal_moves(divided, dividable()) if isinstance(m, SetSplit | Place)]
    assert any(move.apply(divided, chain()).regions[0].split is None for move in back)


def test_where_nothing_is_proven_there_are_no_moves_to_splits() -> None:
    start = plan(chain(), EVERYTHING, rewrite=ORT_1)
    assert not [m for m in legal_moves(start, space(chain())) if isinstance(m, SetSplit)]


def test_the_whole_model_over_all_cores_is_a_candidate() -> None:
    divided = [p for p in candidates(dividable()).values() if p.regions[0].split is not None]
    assert [p.summary for p in divided] == [f"onnxruntime x1 rows on {TEAM}"]
    assert divided[0].regions[0].threads == 2


def test_a_team_has_no_more_engines_than_there_are_rows() -> None:
    engines = ("caller", *(f"cpu:{core}" for core in range(4)))
    for num_rows, size in ((0, 2), (3, 3), (8, 4)):
        rows = partial(int, num_rows)
        here = dividable(engines=engines, count_rows=rows, usable_cores=4)
        divided = [p for p in candidates(here).values() if p.regions[0].split is not None]
        assert [len(members(p.regions[0].engine)) for p in divided] == [size]


def test_a_team_has_no_more_engines_than_the_quota_allows() -> None:
    engines = ("caller", *(f"cpu:{core}" for core in range(4)))
    for usable, size in ((2, 2), (3, 3), (4, 4)):
        here = dividable(engines=engines, count_rows=lambda: 8, usable_cores=usable)
        divided = [p for p in candidates(here).values() if p.regions[0].split is not None]
        assert [len(members(p.regions[0].engine)) for p in divided] == [size]


def refusing(*bad: str):  # type: ignore[no-untyped-def]
    """A space in which no region with one of these ops can be divided."""
    return dividable(why_undivided=lambda region: "no" if {*bad} & {*region.ops} else None)


@pytest.mark.parametrize(
    ("bad", "regions"),
    [
        (("c",), [(("a", "b"), True), (("c",), False), (("d",), True)]),
        (("a", "b"), [(("a", "b"), False), (("c", "d"), True)]),
        ((), [(("a", "b", "c", "d"), True)]),
    ],
)
def test_a_model_is_divided_as_far_as_that_is_legal(
    bad: tuple[str, ...], regions: list[tuple[tuple[str, ...], bool]]
) -> None:
    found = as_far_as_legal(refusing(*bad), engine=TEAM, rewrite=ORT_1, rest=ORT_2)
    assert found is not None
    assert [(r.ops, r.split is not None) for r in found.regions] == regions
    assert all(r.rewrite == (ORT_2 if r.split is None else ORT_1) for r in found.regions)
    assert why_illegal(found, refusing(*bad)) is None


def test_neighbours_that_cannot_be_divided_together_stay_apart() -> None:
    def why(region: Region) -> str | None:
        return "no" if len(region.ops) > 2 else None

    found = as_far_as_legal(
        space(chain(), why_undivided=why, usable_cores=2), engine=TEAM, rewrite=ORT_1, rest=ORT_2
    )
    assert found is not None
    assert [region.ops for region in found.regions] == [("a", "b"), ("c", "d")]


def test_where_nothing_can_be_divided_there_is_no_such_plan() -> None:
    nothing = refusing("a", "b", "c", "d")
    assert as_far_as_legal(nothing, engine=TEAM, rewrite=ORT_1, rest=ORT_2) is None


@pytest.mark.parametrize("split", [Split(), Split(shares=(5, 3)), Split(how="interleaved")])
def test_plans_with_splits_are_written_and_read(split: Split) -> None:
    divided = plan(chain(), EVERYTHING, engine=TEAM, rewrite=ORT_1, split=split)
    assert loads(dumps(divided), chain()) == divided
    assert plain(to_data(divided)) == divided
    assert divided != whole(chain(), engine=TEAM, rewrite=ORT_1)


@pytest.mark.parametrize("entry", ['"rows"', '{"how": "rows"}', "{}"])
def test_a_split_is_written_by_hand(entry: str) -> None:
    text = f'{{"schema_version": 1, "regions": [{{"ops": "*", "split": {entry}}}]}}'
    assert loads(text, chain()).regions[0].split == Split()


@pytest.mark.parametrize(
    ("entry", "words"),
    [
        ("7", ["a split is its name or an object", "7"]),
        ('{"how": 7}', ["split.how", "7"]),
        ('{"shares": 3}', ["split.shares", "3"]),
        ('{"shares": []}', ["split.shares"]),
        ('{"shares": [1, true]}', ["split.shares", "True"]),
        ('{"ratio": 2}', ["unknown split setting 'ratio'", "shares"]),
    ],
)
def test_what_is_no_split_is_told(entry: str, words: list[str]) -> None:
    text = f'{{"schema_version": 1, "regions": [{{"ops": "*", "split": {entry}}}]}}'
    with pytest.raises(PlanError) as caught:
        loads(text, chain())
    assert all(word in str(caught.value) for word in words)


def test_a_region_that_moves_to_one_engine_is_whole_again() -> None:
    divided = plan(chain(), EVERYTHING, engine=TEAM, rewrite=ORT_1, split=Split())
    moved = Place(region="a", engine="cpu:1").apply(divided, chain())
    assert moved.regions[0] == replace(
        Region(ops=tuple(EVERYTHING.split())), engine="cpu:1", rewrite=ORT_1
    )


@pytest.mark.parametrize("num_rows", [0, 1, 2, 7, 8, 33])
@pytest.mark.parametrize("row_s", [[1, 1], [1, 2], [1, 3], [2, 1], [1, 5], [float("inf"), 1]])
def test_the_last_to_finish_is_done_as_early_as_can_be(num_rows: int, row_s: list[float]) -> None:
    def end_s(rows: list[int]) -> float:
        both = zip(rows, row_s, strict=True)
        return max((count * seconds for count, seconds in both if count), default=0.0)

    found = apportioned(num_rows, row_s)
    assert sum(found) == num_rows
    assert end_s(found) == min(end_s([n, num_rows - n]) for n in range(num_rows + 1))


def test_three_engines_share_alike() -> None:
    assert apportioned(9, [1, 1, 1]) == [3, 3, 3]
