"""What `gearshift bench regions` makes of the calls it saw."""

import pytest

from gearshift.bench.regions import CALLS, _Calls, _told, _until_near
from gearshift.bench.score import PEERS, TWICE


def test_calls_not_run_are_carried_on_from_the_last_third() -> None:
    calls = _Calls(2.0, [0.5] * 100 + [0.1] * 50)
    assert calls.steady_s == pytest.approx(0.1)
    assert calls.until_s(100) == pytest.approx(2.0 + 50.0)
    assert calls.until_s(1000) == pytest.approx(2.0 + 50.0 + 900 * 0.1)


def test_ratios_count_what_it_took_to_get_ready() -> None:
    peers = {name: _Calls(1.0, [0.02] * 300) for name in (*PEERS, TWICE)}
    peers["eager"] = _Calls(0.0, [0.04] * 300)
    peers["openvino"] = _Calls(10.0, [0.01] * 300)
    ours = _Calls(5.0, [0.04] * 100 + [0.01] * 300)
    answer = {"max_error": 1e-6, "plans": ["openvino x2"], "decisions": []}
    told = _told("mine", ours, peers, [answer])
    assert told["best_peer"] == "openvino"
    assert told["vs_best_peer"] == pytest.approx(1.0)
    assert told["vs_eager"] == pytest.approx(4.0)
    assert told["vs_eager_at_100"] == pytest.approx(4.0 / 9.0)
    few, _, many = (told[f"vs_best_peer_at_{n}"] for n in CALLS)
    assert few < 1 < many, "it pays in the long run"
    assert told["plan"] == "openvino x2"


@pytest.mark.parametrize(
    ("call_s", "calls"),
    [
        ([1.0] * 30 + [0.1] * 300, 25),
        ([0.1] * 300, 0),
        ([1.0] * 30, None),
    ],
)
def test_how_many_calls_until_it_is_as_good_as_it_gets(
    call_s: list[float], calls: int | None
) -> None:
    found = _until_near(call_s, 0.1)
    assert found == calls or (found is not None and calls is not None and abs(found - calls) <= 1)
