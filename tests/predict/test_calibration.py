"""Predictions are compared with what came of them, and corrected by that."""

import json

import pytest

from gearshift.predict.calibration import MOST, Calibration


def learned(ratios: list[float]) -> Calibration:
    calibration = Calibration()
    for ratio in ratios:
        predicted_s = calibration.factor("guess")
        calibration.add("guess", raw_s=1.0, predicted_s=predicted_s, measured_s=ratio)
    return calibration


def test_a_model_that_is_always_off_by_the_same_is_corrected() -> None:
    calibration = learned([1.5] * 200)
    assert calibration.factor("guess") == pytest.approx(1.5, rel=0.02)
    assert 1.0 < learned([1.5]).factor("guess") < 1.2, "once is not always"
    assert calibration.factor("another kind") == 1.0


def test_what_is_left_after_the_correction_is_told() -> None:
    count, error = learned([1.5] * 200).typical_error()
    assert count == 200
    assert error < 0.1
    assert learned([0.5, 2.0] * 20).typical_error()[1] > 0.5
    assert Calibration().typical_error() == (0, 0.0)


def test_no_correction_is_so_large_that_a_plan_gets_no_chance() -> None:
    assert learned([50.0] * 10).factor("guess") == MOST
    assert learned([0.02] * 10).factor("guess") == 1 / MOST


@pytest.mark.parametrize("measured_s", [float("nan"), float("inf"), 0.0, -1.0, 1e9])
def test_what_can_be_no_measurement_teaches_nothing(measured_s: float) -> None:
    calibration = Calibration()
    calibration.add("guess", raw_s=1.0, predicted_s=1.0, measured_s=measured_s)
    assert not calibration.ratios


def test_it_is_kept_as_text_and_what_is_poisoned_is_not_taken() -> None:
    calibration = learned([1.2] * 5)
    text = json.dumps(calibration.to_data())
    assert Calibration.from_data(json.loads(text)) == calibration
    assert not Calibration.from_data({"guess": [3, 99.0, 0.0], "other": [0, 0.0, 0.0]}).ratios
