"""What the unroll world is made of, recorded by whoever times kernels."""

import sys
from types import ModuleType

import pytest

from gearshift.bench import unroll_profiles
from gearshift.sim.unroll_profiles import Kernels

asked: list[tuple[str, int, int, int, int]] = []


def time_kernels(
    kind: str, input_size: int, hidden_size: int, rows: int, threads: int
) -> dict[str, tuple[float, float]]:
    asked.append((kind, input_size, hidden_size, rows, threads))
    return {"one": (2e-5, 1e-6 * rows), "other": (1e-5, 2e-6 * rows)}


@pytest.fixture(autouse=True)
def _timed(monkeypatch: pytest.MonkeyPatch) -> None:
    """In no time."""
    fake = ModuleType("gearshift.bench.rnn_kernels")
    monkeypatch.setattr(fake, "time_kernels", time_kernels, raising=False)
    monkeypatch.setitem(sys.modules, fake.__name__, fake)
    asked.clear()


def test_every_size_is_recorded_by_every_kernel() -> None:
    said: list[str] = []
    found = list(unroll_profiles.record(said.append))
    assert len(asked) == len(set(asked)) == len(said) == 144
    assert len(found) == 2 * 144
    assert all(profile.input_size == profile.hidden_size for profile in found)
    assert {profile.hidden_size for profile in found} == {32, 64, 128, 256, 512, 1024}
    grids = Kernels.of(found).grids
    assert grids.keys() == {(kind, threads) for kind in ("lstm", "gru") for threads in (1, 2)}
    assert {len(some) for some in grids.values()} == {2}


def test_without_time_nothing_is_measured() -> None:
    said: list[str] = []
    assert not list(unroll_profiles.record(said.append, minutes=-1.0))
    assert said == ["no time for 144 of 144 sizes"]
    assert not asked
