"""Row C9: whatever is given as MODEL, the command line answers in one line and exits with 2.

Each case is a process of its own, as a user would start it.
"""

import subprocess
import sys
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

FILES = {
    "models.py": """
import torch
from torch import nn

def raises():
    raise ValueError("no such checkpoint\\nlooked in two places")

def number():
    return 42

def misfit():
    return nn.Linear(3, 3), torch.randn(2, 4)
""",
    "broken.py": "raise ZeroDivisionError('at import')",
    "weights.pth": "this is no suffix we take",
}
CASES = {
    "missing file": ("nowhere.onnx", "nowhere.onnx"),
    "wrong suffix": ("weights.pth", "weights.pth"),
    "factory raises": ("models.py:raises", "no such checkpoint"),
    "not a model": ("models.py:number", "int"),
    "example does not fit": ("models.py:misfit", "2x4"),
    "module raises": ("broken:make", "at import"),
    "looks like markup": ("[/dim]", "[/dim]"),
    "no number of rows": ("mlp@many", "how many times the rows"),
}
AT_ONCE = 2


@pytest.fixture(scope="module")
def ended(tmp_path_factory: pytest.TempPathFactory) -> dict[str, subprocess.CompletedProcess[str]]:
    """Every case's process, run two at a time: most of their time is importing torch."""
    folder = tmp_path_factory.mktemp("models")
    for name, text in FILES.items():
        Path(folder, name).write_text(text)

    def run(case: str) -> subprocess.CompletedProcess[str]:
        return gearshift("run", CASES[case][0], folder=folder)

    with ThreadPoolExecutor(AT_ONCE) as pool:
        return dict(zip(CASES, pool.map(run, CASES), strict=True))


def gearshift(*arguments: str, folder: Path) -> subprocess.CompletedProcess[str]:
    command: Sequence[str] = (str(Path(sys.executable).with_name("gearshift")), *arguments)
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=120)


@pytest.mark.parametrize("case", CASES)
def test_C9_a_wrong_model_argument_is_one_line_and_exit_code_2(
    case: str, ended: dict[str, subprocess.CompletedProcess[str]]
) -> None:
    process, (_, word) = ended[case], CASES[case]
    assert process.returncode == 2, process.stderr
    assert process.stdout == ""
    assert "Traceback" not in process.stderr
    lines = process.stderr.splitlines()
    (error,) = [number for number, line in enumerate(lines) if line.startswith("error: ")]
    assert lines[error + 1 :] == [], "the error is one line, and the last one"
    assert word in lines[error]
    assert all(line.endswith("...") for line in lines[:error]), "before it, only progress"
