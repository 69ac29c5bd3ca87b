"""What this machine has, and the exact command for what it lacks."""

import pytest

from gearshift import doctor
from gearshift.act.backends import BACKENDS
from gearshift.ir.measurement import Source
from gearshift.observe.hal.counters import Description, Unit


@pytest.mark.capability("core.engines")
def test_every_backend_is_tried_and_every_engine_and_counter_told() -> None:
    found = doctor.diagnose(lambda text: None)
    assert {backend.name for backend in found.backends} == set(BACKENDS)
    assert all(backend.works for backend in found.backends), found.backends
    assert {"caller", "cpu:0"} <= {engine.name for engine in found.engines}
    assert all(row.origin for row in found.counters)
    assert {row.source for row in found.counters} >= {Source.MEASURED}
    assert found.sound


def test_a_missing_library_comes_with_its_command(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(doctor, "find_spec", lambda name: None if name == "openvino" else object())
    state = doctor._try("openvino")
    assert not state.works
    assert state.remedy == 'pip install "gearshift[openvino]"'


def test_a_missing_compiler_comes_with_its_command(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(doctor.shutil, "which", lambda name: None)
    state = doctor._try("inductor")
    assert not state.works
    assert "apt-get install g++" in state.remedy


@pytest.mark.parametrize(
    ("source", "origin", "remedy"),
    [
        (Source.UNAVAILABLE, "see /proc/sys/kernel/perf_event_paranoid", "sudo sysctl"),
        (Source.MODELLED, "not measured: /sys/class/powercap: Permission denied", "sudo chmod"),
        (Source.MEASURED, "Permission denied: powercap", None),
        (Source.UNAVAILABLE, "no such file", None),
    ],
)
def test_what_is_only_forbidden_has_a_remedy(
    source: Source, origin: str, remedy: str | None
) -> None:
    row = Description(name="a", unit=Unit.SHARE, source=source, origin=origin)
    found = list(doctor._remedies((row,)))
    assert [f.startswith(remedy or "") for f in found] == [True] * (remedy is not None)


def test_extras_are_those_a_user_can_ask_for(monkeypatch: pytest.MonkeyPatch) -> None:
    extras = {extra.name: extra for extra in doctor.find_extras()}
    assert {"onnx", "openvino"} <= extras.keys()
    assert "dev" not in extras
    assert not extras["onnx"].missing
    monkeypatch.setattr(doctor, "_is_here", lambda package: package != "openvino")
    lacking = {extra.name: extra for extra in doctor.find_extras()}["openvino"]
    assert lacking.missing == ("openvino",)
    assert lacking.remedy == 'pip install "gearshift[openvino]"'
