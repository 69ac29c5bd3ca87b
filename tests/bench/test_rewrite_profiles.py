"""What the rewrite world is made of, recorded from a real model."""

import pytest

from gearshift.bench import rewrite_profiles
from gearshift.plan.library import BY_NAME, Build


@pytest.fixture(autouse=True)
def _short(monkeypatch: pytest.MonkeyPatch) -> None:
    """One small model, twice."""
    settings = {"BUILT_IN": ("mlp", "mlp"), "MODELS": (), "SECONDS": 0.005}
    for name, value in {**settings, "DEPTH": 1, "MAX_SLOW": 0}.items():
        monkeypatch.setattr(rewrite_profiles, name, value)


def test_regions_are_measured_by_every_entry_that_fits_and_each_but_once() -> None:
    said: list[str] = []
    found = list(rewrite_profiles.record(said.append, minutes=3.0))
    assert {profile.model for profile in found} == {"mlp"}
    assert len({profile.name for profile in found}) == len(found) > 1
    whole = found[0]
    assert whole.kind == "linear"
    assert whole.num_ops > found[1].num_ops
    for profile in found:
        assert {"eager", "onnxruntime", "openvino"} <= set(profile.seconds)
        assert all(BY_NAME[name].build is not Build.SLOW for name in profile.seconds)
        assert profile.seconds.keys() == profile.build_s.keys()
        assert min(*profile.seconds.values(), profile.compute_s, profile.memory_s) > 0
    assert any("region 1 of" in line for line in said)


def test_without_time_nothing_is_measured() -> None:
    said: list[str] = []
    assert not list(rewrite_profiles.record(said.append, minutes=0.0))
    assert any("no time" in line for line in said)
