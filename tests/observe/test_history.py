"""What was seen is kept: lately all of it, earlier some of it, never too much."""

from gearshift.ir.snapshot import Snapshot
from gearshift.observe.history import MAX_KEPT, History


def test_it_keeps_the_last_and_thins_out_the_rest() -> None:
    history = History()
    for number in range(5 * MAX_KEPT):
        history.add(Snapshot(at_s=float(number), plan="p", trial=None, situation=None))
    times = [snapshot.at_s for snapshot in history]
    assert len(times) <= MAX_KEPT
    assert times == sorted(times)
    assert times[0] < MAX_KEPT, "the beginning is not forgotten"
    assert times[-500:] == [float(n) for n in range(5 * MAX_KEPT - 500, 5 * MAX_KEPT)]
