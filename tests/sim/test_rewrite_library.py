"""Who wins, by a record made of numbers."""

from dataclasses import replace

import pytest

from gearshift.sim.rewrite_library import noise_of, won
from gearshift.sim.rewrite_profiles import RegionProfile
from tests.profiles import region


def taking(name: str, **seconds: float) -> RegionProfile:
    times = {key.replace("_", " "): value for key, value in seconds.items()}
    built = dict.fromkeys(times, 0.5)
    return replace(region("m"), name=name, seconds=times, build_s=built)


def test_who_is_ahead_of_every_other_backend_by_more_than_noise_wins() -> None:
    found = won(
        [
            taking("a", eager=1.0, prefetch=1.1, onnxruntime=0.5, openvino=0.6),
            taking("b", eager=1.0, prefetch=1.1, onnxruntime=0.95, openvino=2.0),
            taking("c", eager=1.0, prefetch=1.1, channels_last=0.3, onnxruntime=0.6),
        ]
    )
    assert next(iter(found)) in ("onnxruntime", "channels last")
    assert (found["onnxruntime"].best_on, found["channels last"].best_on) == (1, 1)
    assert found["onnxruntime"].most == pytest.approx(1.2)
    assert found["channels last"].where == "m: c"
    assert found["eager"].best_on == found["openvino"].best_on == 0
    assert "fusion" not in found, "never measured"


def test_how_far_twins_differ_is_noise() -> None:
    alike = [taking(str(i), eager=1.0, prefetch=1.2, onnxruntime=1.0) for i in range(10)]
    assert noise_of(alike) == pytest.approx(1.2)
    assert noise_of([]) == 1.0
