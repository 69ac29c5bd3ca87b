"""Contenders for real: one runs while the others stand still, and none outlives the benchmark."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest

from gearshift.bench.arena import Contender, Setting
from gearshift.bench.contender import BUILD, REST
from gearshift.busy import Neighbour, busy
from gearshift.errors import GearshiftError

FACTORY = """
import torch
def make():
    torch.manual_seed(0)
    return torch.nn.Linear(64, 64).eval(), torch.randn(4, 64)
def broken():
    raise RuntimeError("no such weights")
print("models may print")
"""
ORPHAN = """
import sys, time
from pathlib import Path
from gearshift.bench.arena import Contender, Setting
contender = Contender(sys.argv[1], Setting(kind="eager"), Path(sys.argv[2]))
contender.arrive()
contender.open()
print(contender._process.pid, flush=True)
time.sleep(600)
"""


@pytest.fixture
def model(tmp_path: Path) -> str:
    (tmp_path / "mine.py").write_text(FACTORY)
    return str(tmp_path / "mine.py")


def stops(process: psutil.Process) -> bool:
    """A signal takes a moment."""
    end_s = time.monotonic() + 10
    while process.status() != psutil.STATUS_STOPPED and time.monotonic() < end_s:
        time.sleep(0.01)
    return process.status() == psutil.STATUS_STOPPED


def test_contenders_answer_alike_and_stand_still_between(model: str, tmp_path: Path) -> None:
    for kind in ("export", "onnxruntime", "gearshift"):
        contender = Contender(f"{model}:make", Setting(kind=kind), tmp_path)
        try:
            contender.arrive()
            contender.open()
            answer = contender.run(0.3)
            assert len(answer["call_s"]) > 0
            assert answer["max_error"] < 1e-4
            assert stops(psutil.Process(contender._process.pid))
        finally:
            contender.close()
    assert "decisions" in answer


@pytest.mark.soak
def test_builds_have_their_own_core_and_are_over_before_rest(model: str, tmp_path: Path) -> None:
    if len(os.sched_getaffinity(0)) < 2:
        pytest.skip("there is no second core")
    contender = Contender(f"{model}:make", Setting(kind="building"), tmp_path)
    try:
        contender.arrive()
        contender.open()
        contender.become(BUILD)
        building = contender.run(2.0)
        contender.become(REST)
        calm, still = contender.run(0.3), contender.run(0.3)
    finally:
        contender.close()
    assert building["builds"] > 0
    assert calm["builds"] == still["builds"]
    assert len(still["cores"]) == 1
    assert set(still["background_cores"]) - set(still["cores"])


@pytest.mark.soak
def test_one_that_starts_cold_finds_nothing_compiled_and_counts_its_first_call(
    model: str, tmp_path: Path
) -> None:
    cold = Contender(f"{model}:make", Setting(kind="torch.compile", warm_up=0, cold=True), tmp_path)
    try:
        cold.arrive()
        environment = Path(f"/proc/{cold._process.pid}/environ").read_text()
        cold.open()
        first, *later = cold.run(0.3)["call_s"]
        later += cold.run(0.3)["call_s"]
    finally:
        cold.close()
    assert f"TORCHINDUCTOR_CACHE_DIR={tmp_path}" in environment
    assert first > 20 * min(later), "it compiles"


def test_one_that_cannot_start_says_why(model: str, tmp_path: Path) -> None:
    contender = Contender(f"{model}:broken", Setting(kind="eager"), tmp_path)
    try:
        contender.arrive()
        with pytest.raises(GearshiftError, match="no such weights"):
            contender.open()
    finally:
        contender.close()


def test_a_contender_goes_with_a_benchmark_that_is_killed(model: str, tmp_path: Path) -> None:
    command = [sys.executable, "-c", ORPHAN, f"{model}:make", str(tmp_path)]
    bench = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    assert bench.stdout is not None
    contender = psutil.Process(int(bench.stdout.readline()))
    bench.send_signal(signal.SIGKILL)
    bench.wait()
    contender.wait(10)
    assert not contender.is_running()


def test_neighbours_take_their_core_and_go() -> None:
    both = [Neighbour(kind="arithmetic", core=0), Neighbour(kind="memory", core=None)]
    with busy(both) as pids:
        strangers = [psutil.Process(pid) for pid in pids]
        assert os.sched_getaffinity(pids[0]) == {0}
        assert not set(pids) & {child.pid for child in psutil.Process().children(recursive=True)}
        time.sleep(1.0)
        assert all(sum(stranger.cpu_times()[:2]) > 0.1 for stranger in strangers)
    assert all(map(gone, strangers))


def gone(process: psutil.Process) -> bool:
    """Or dead, and not yet taken notice of by whoever has become its parent."""
    end_s = time.monotonic() + 10
    while time.monotonic() < end_s:
        if not process.is_running() or process.status() == psutil.STATUS_ZOMBIE:
            return True
        time.sleep(0.01)
    return False
