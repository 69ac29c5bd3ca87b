"""Who is still there, and where chunks end."""

import torch

from gearshift.act.recurrent.rows import Rows, reversed_rows, sorted_rows
from gearshift.plan.unroll import AT_ONCE, ROLLED, Steps


def ends(rows: Rows, steps: Steps) -> list[int]:
    found, at = [], 0
    while at < rows.num_steps:
        at = rows.chunk_end(at, steps)
        found.append(at)
    return found


def test_chunks_of_rows_that_are_all_as_long() -> None:
    rows = Rows(10, 3)
    assert ends(rows, AT_ONCE) == [10]
    assert ends(rows, Steps(then=4)) == [4, 8, 10]
    assert ends(rows, Steps(first=7, then=1)) == [7, 8, 9, 10]
    assert ends(rows, ROLLED) == list(range(1, 11))
    assert rows.alive(9) == 3


def test_chunks_end_where_rows_do_if_going_on_would_cost_more_than_another() -> None:
    rows = Rows.ragged([20, 9, 9, 5, 1])
    assert [rows.alive(at) for at in (0, 1, 4, 5, 8, 9, 19, 20)] == [5, 4, 4, 3, 3, 1, 1, 0]
    assert ends(rows, Steps(then=4)) == [4, 8, 12, 16, 20]
    assert ends(rows, ROLLED) == list(range(1, 21))
    assert ends(rows, AT_ONCE) == [5, 9, 20]
    many = Rows.ragged([100, *[1] * 30])
    assert ends(many, AT_ONCE) == [1, 100]
    assert ends(many, Steps(then=40)) == [1, 41, 81, 100]


def test_rows_backwards_begin_at_their_own_end() -> None:
    rows = Rows.ragged([3, 1])
    x = torch.arange(8.0).reshape(4, 2, 1)
    turned = reversed_rows(x, rows.reversal(4))
    assert turned[:3, 0, 0].tolist() == [4.0, 2.0, 0.0]
    assert turned[0, 1, 0] == x[0, 1, 0]
    assert torch.equal(reversed_rows(turned, rows.reversal(4)), x)
    assert torch.equal(reversed_rows(x, Rows(4, 2).reversal(4)), x.flip(0))


def test_rows_in_order_of_length() -> None:
    assert sorted_rows([4, 4, 2]) is None
    assert sorted_rows([2, 4, 4]) == [1, 2, 0]
