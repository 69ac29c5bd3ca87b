import pytest

from gearshift.ir.measurement import Metric, Source
from gearshift.observe.hal import NullCounters, Unit, check_counters
from gearshift.observe.hal.counters import Readings, measured, modelled, share


def test_the_null_counters_pass_the_checker_and_give_what_they_are_fed() -> None:
    counters = NullCounters({"a": measured(0.5), "b": measured(None)})
    counters.feed(a=measured(0.75))
    assert counters.read(1.0)["a"].value == 0.75
    check_counters(counters)


class Silent(NullCounters):
    """Describes more than it reads."""

    def read(self, now_s: float) -> Readings:
        return {} if now_s else super().read(now_s)


class Undying(NullCounters):
    def close(self) -> None:
        pass


class Mislabelled(NullCounters):
    def read(self, now_s: float) -> Readings:
        return {"a": modelled(0.5) if now_s else measured(0.5)}


@pytest.mark.parametrize(
    ("counters", "duty"),
    [
        (Silent({"a": measured(0.5)}), "what is described is read"),
        (Undying({"a": measured(0.5)}), "closed counters"),
        (Mislabelled({"a": measured(0.5)}), "described as measured, read as modelled"),
        (NullCounters({}), "at least one metric"),
        (NullCounters({"a": measured(1.5)}), "above 1"),
        (NullCounters({"a": measured(-1.0)}, unit=Unit.HZ), "below 0"),
        (NullCounters({"a": measured(float("nan"))}), "no number"),
    ],
)
def test_the_checker_says_which_duty_is_not_met(counters: NullCounters, duty: str) -> None:
    with pytest.raises(AssertionError, match=duty):
        check_counters(counters)


def test_what_has_no_whole_has_no_share() -> None:
    assert share(1, 0) is None
    assert share(3, 2) == 1.0
    assert measured(share(0, 0)) == Metric(value=None, source=Source.UNAVAILABLE)
