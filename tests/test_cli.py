"""The command line: what goes to stdout, what to stderr, and the exit codes."""

import fcntl
import json
import os
import pty
import re
import shlex
import signal
import struct
import subprocess
import sys
import termios
import threading
import time
from collections.abc import Callable
from contextlib import nullcontext, suppress
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest

from gearshift.cli import main
from gearshift.decide.learn.agent import Role
from gearshift.decide.learn.dqn import Dqn
from gearshift.decide.learn.ppo import Actor
from gearshift.decide.rewrite.agent import ROLE as REWRITE
from gearshift.decide.rewrite.agent import Agent as Rewriter
from gearshift.decide.split.agent import ROLE as SPLIT
from gearshift.decide.split.agent import SHIPPED
from gearshift.decide.split.agent import Agent as Splitter
from gearshift.decide.unroll.agent import ROLE as UNROLL
from gearshift.decide.unroll.agent import Agent as Unroller
from gearshift.sim.profiles import write_profiles
from tests.profiles import kernels, regions

FACTORY = """
import torch
from torch import nn

def make():
    torch.manual_seed(0)
    layers = [nn.Linear(96, 96), nn.GELU()] * 6
    return nn.Sequential(*layers), torch.randn(16, 96)


def tiny():
    return nn.Linear(4, 4), torch.randn(2, 4)
"""


@dataclass
class Result:
    returncode: int
    stdout: str
    stderr: str


@pytest.fixture
def gearshift(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Callable[..., Result]:
    """The command, in this process: most tests are about what it prints."""
    monkeypatch.chdir(folder)

    def call(*args: str) -> Result:
        monkeypatch.setattr(sys, "argv", ["gearshift", *args])
        capsys.readouterr()
        with pytest.raises(SystemExit) as ended:
            main()
        out, err = capsys.readouterr()
        return Result(int(ended.value.code or 0), out, err)

    return call


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    place = tmp_path / "with a space"
    place.mkdir()
    (place / "mine.py").write_text(FACTORY)
    return place


def test_run_exports_a_plan_that_runs_again(folder: Path, gearshift: Callable[..., Result]) -> None:
    args = ["run", "mine.py:make", "--seconds", "6", "--policy", "bandit"]
    args += ["--export", "best plan.json", "--json"]
    command = [sys.executable, "-c", "from gearshift.cli import main; main()", *args]
    first = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=240)
    assert first.returncode == 0, first.stderr
    data = json.loads(first.stdout)
    assert data["schema_version"] == 1
    assert data["max_error"] <= 1e-4
    assert data["eager"]["calls"] > 0
    assert data["gearshift_at_end"]["calls"] <= data["gearshift"]["calls"]
    assert data["decisions"], first.stderr
    for decision in data["decisions"]:
        assert decision["reason"] in first.stderr, "told as it is made"
    plan = json.loads((folder / "best plan.json").read_text())
    assert plan == data["plan"]
    again = gearshift("run", "mine.py:make", "--plan", "best plan.json", "--seconds", "0.5")
    assert again.returncode in (0, 3), again.stderr
    assert "asked for: best plan.json" in again.stdout
    assert "vs eager" in again.stdout


def test_a_plan_slower_than_eager_breaks_a_promise(
    folder: Path, gearshift: Callable[..., Result]
) -> None:
    """Handing a few microseconds of work to another thread cannot pay."""
    rewrite = {"backend": "openvino", "threads": 1}
    regions = [{"ops": "*", "engine": "cpu:0", "rewrite": rewrite}]
    (folder / "slow.json").write_text(json.dumps({"schema_version": 1, "regions": regions}))
    result = gearshift("run", "mine.py:tiny", "--plan", "slow.json", "--seconds", "0.5")
    assert result.returncode == 3, result.stdout + result.stderr
    assert "slower than eager" in result.stderr


def test_run_writes_a_page_and_a_trace(folder: Path, gearshift: Callable[..., Result]) -> None:
    args = ["--seconds", "1", "--report", "my page.html", "--trace", "my trace.json"]
    result = gearshift("run", "mine.py:make", *args)
    assert result.returncode in (0, 3), result.stderr
    assert "report: my page.html" in result.stderr
    page = (folder / "my page.html").read_text()
    assert "<h1>mine.py:make</h1>" in page
    assert "my trace.json" in page, "the command that made it"
    made = json.loads((folder / "my trace.json").read_text())
    assert shlex.split(made["otherData"]["command"])[-1] == "my trace.json"
    assert {event["ph"] for event in made["traceEvents"]} >= {"M", "X"}


def test_an_interrupted_run_still_tells_what_happened(folder: Path) -> None:
    """Ctrl-C reaches every process of the terminal's group; the control process is deaf to it."""
    hears = "import signal; signal.signal(signal.SIGINT, signal.default_int_handler)"
    command = [sys.executable, "-c", f"{hears}; from gearshift.cli import main; main()"]
    command += ["run", "mine.py:make", "--seconds", "60", "--policy", "bandit"]
    command += ["--trace", "trace.json"]
    pipe = subprocess.PIPE
    with subprocess.Popen(
        command, cwd=folder, stderr=pipe, text=True, start_new_session=True
    ) as process:
        assert process.stderr is not None
        for line in process.stderr:
            if line.startswith("running"):
                break
        time.sleep(3)
        os.killpg(process.pid, signal.SIGINT)
        told = process.stderr.read()
        assert process.wait(60) == 130
    assert "Traceback" not in told
    assert "died" not in told
    assert "Where the time went" in (folder / "report.html").read_text()
    events = json.loads((folder / "trace.json").read_text())["traceEvents"]
    assert {event["ph"] for event in events} >= {"M", "X", "C"}


def test_a_run_goes_on_when_nobody_reads_what_it_says(folder: Path) -> None:
    command = [sys.executable, "-c", "from gearshift.cli import main; main()"]
    command += ["run", "mine.py:tiny", "--seconds", "1", "--policy", "keep"]
    line = f"{shlex.join(command)} 2>&1 | head -1"
    subprocess.run(["bash", "-c", line], cwd=folder, timeout=120, check=True)
    assert (folder / "report.html").exists()


def test_where_nothing_can_be_written_the_run_does_not_begin(
    folder: Path, gearshift: Callable[..., Result], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("gearshift.commands.os.access", lambda path, mode: False)
    result = gearshift("run", "mine.py:tiny", "--seconds", "0.1", "--report", "mine.html")
    assert result.returncode == 2
    assert "permission denied" in result.stderr
    assert "loading" not in result.stderr
    assert gearshift("run", "mine.py:tiny", "--report", ".").returncode == 2
    both = gearshift("run", "mine.py:tiny", "--report", "a.html", "--no-report")
    assert both.returncode == 2


def test_a_report_that_nobody_asked_for_is_left_out_where_it_cannot_be_written(
    folder: Path, gearshift: Callable[..., Result], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("gearshift.commands.os.access", lambda path, mode: False)
    result = gearshift("run", "mine.py:tiny", "--seconds", "0.2")
    assert result.returncode in (0, 3), result.stderr
    assert "--report FILE" in result.stderr
    assert not (folder / "report.html").exists()


def test_doctor_prints_one_document(gearshift: Callable[..., Result]) -> None:
    result = gearshift("doctor", "--json")
    assert result.returncode == 0, result.stderr
    data = json.loads(result.stdout)
    assert {backend["name"] for backend in data["backends"]} >= {"eager", "onnxruntime"}
    assert data["engines"][0]["name"] == "caller"


def test_profile_prints_a_table_of_regions(folder: Path, gearshift: Callable[..., Result]) -> None:
    options = ("--seconds", "0.02", "--report", "profile.html", "--json")
    result = gearshift("profile", "mine.py:make", *options)
    assert result.returncode == 0, result.stderr
    assert "Under the roofline" in (folder / "profile.html").read_text()
    data = json.loads(result.stdout)
    rows, lines = data["regions"], data["hierarchy"]
    assert [line["level"] for line in lines] == [0] + [1] * 12
    assert {line["bound"] for line in lines} <= {"compute", "memory", None}
    assert all(line["rewrites_s"] for line in lines[1:])
    assert data["roofline"]["peak_flops_s"] > 1e9
    assert len(data["ops"]) >= 12
    assert len({tuple(row["ops"]) for row in rows}) == 12
    assert len({row["region"] for row in rows}) == 2, "equal layers share one identity"
    assert {row["rewrite"].split()[0] for row in rows} == {"eager", "onnxruntime", "openvino"}


@pytest.mark.parametrize(
    ("plan", "said"),
    [
        ("{", "not JSON"),
        ("[]", "a plan is"),
        ('{"schema_version": 9, "regions": []}', "schema_version is 9"),
        ('{"schema_version": 1, "regions": [{"ops": ["nope"]}]}', "'nope' is no op"),
        ('{"schema_version": 1, "regions": [{"ops": "*", "engine": "cpu:77"}]}', "no engine"),
        ('{"schema_version": 1, "regions": [{"ops": "*", "rewrite": "fast"}]}', "no backend"),
    ],
)
def test_a_wrong_plan_is_one_line_and_exit_2(
    folder: Path, gearshift: Callable[..., Result], plan: str, said: str
) -> None:
    (folder / "plan.json").write_text(plan)
    result = gearshift("run", "mine.py:tiny", "--plan", "plan.json")
    assert result.returncode == 2
    assert result.stdout == ""
    (line,) = [line for line in result.stderr.splitlines() if not line.endswith("...")]
    assert line.startswith("error: ")
    assert said in line


def test_help_teaches_with_an_example(gearshift: Callable[..., Result]) -> None:
    for command in ("run", "doctor", "profile", "bench", "train"):
        result = gearshift(command, "--help")
        assert result.returncode == 0
        assert f"Example: gearshift {command}" in result.stdout


def test_no_write_permission_is_said(gearshift: Callable[..., Result]) -> None:
    result = gearshift(
        "run", "mine.py:tiny", "--seconds", "0.1", "--export", "no/such/folder.json")  # fmt: skip
    assert result.returncode == 2
    assert "cannot write 'no/such/folder.json'" in result.stderr


def test_json_is_alone_on_stdout_whatever_the_model_prints(folder: Path) -> None:
    (folder / "loud.py").write_text(
        "import os, torch\n"
        "print('loading')\n"
        "class Loud(torch.nn.Linear):\n"
        "    def forward(self, x):\n"
        "        os.write(1, b'from below')\n"
        "        print('from python')\n"
        "        return super().forward(x)\n"
        "def make():\n"
        "    return Loud(4, 4).eval(), torch.randn(2, 4)\n"
    )
    command = [sys.executable, "-c", "from gearshift.cli import main; main()"]
    command += ["run", "loud.py:make", "--seconds", "0.3", "--policy", "keep", "--json"]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=120)
    assert json.loads(done.stdout)["model"] == "loud.py:make"
    assert "from below" in done.stderr
    assert "from python" in done.stderr


def test_a_plan_that_is_no_text_is_refused(folder: Path, gearshift: Callable[..., Result]) -> None:
    (folder / "plan.json").write_bytes(b"\xff\xfe\x00")
    result = gearshift("run", "mine.py:tiny", "--plan", "plan.json", "--seconds", "0.1")
    assert result.returncode == 2
    assert "is no text" in result.stderr


def test_help_and_completion_load_no_torch() -> None:
    code = (
        "import sys\nfrom gearshift import cli\n"
        "assert 'torch' not in sys.modules, 'torch'\n"
        "from gearshift.zoo import ZOO\nassert list(ZOO) == list(cli.MODELS)\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True, timeout=120)


def test_a_terminal_gets_a_live_view(folder: Path) -> None:
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 24, 80, 0, 0))
    command = [sys.executable, "-c", "from gearshift.cli import main; main()"]
    command += ["run", "mine.py:make", "--seconds", "3", "--policy", "bandit"]
    env = {**os.environ, "TERM": "xterm-256color"}
    with subprocess.Popen(command, cwd=folder, stdout=theirs, stderr=theirs, env=env) as process:
        os.close(theirs)
        text = b""
        patience = threading.Timer(120, process.kill)
        patience.start()
        with suppress(OSError):  # the other end is closed
            while part := os.read(ours, 65536):
                text += part
    patience.cancel()
    os.close(ours)
    assert process.returncode in (0, 3)
    shown = re.sub(r"\x1b\[[0-9;?]*[a-zA-Z]", "", text.decode())
    for word in ("the first calls", "now ", "at start", "eager", "engine", "s left"):
        assert word in shown, shown[-2000:]


@pytest.mark.parametrize(
    ("args", "players"),
    [
        (("split",), {"dqn", "share", "greedy", "greedy, uncorrected", "bandit"}),
        (
            ("rewrite", "--profiles", "regions.json"),
            {"dqn", "rule", "measured greedy", "bandit", "always onnxruntime"},
        ),
        (
            ("unroll", "--profiles", "kernels.json"),
            {"ppo", "greedy", "bandit", "always rolled", "always all at once"},
        ),
    ],
    ids=["split", "rewrite", "unroll"],
)
def test_train_makes_an_agent_a_picture_and_a_table_and_makes_them_again(
    folder: Path, gearshift: Callable[..., Result], args: tuple[str, ...], players: set[str]
) -> None:
    write_profiles(folder / "regions.json", regions("one", "two", "three", "four"), {})
    write_profiles(folder / "kernels.json", kernels(), {})
    few = ("--steps", "1000", "--episodes", "1", "--seed", "5")
    first = gearshift("train", *args, *few, "--out", "one", "--json")
    assert first.returncode == 0, first.stderr
    told = json.loads(first.stdout)
    assert told["knob"] == args[0]
    assert players <= set(told["standings"])
    assert [point["step"] for point in told["curve"]] == [500, 1000]
    assert told["kept_at_step"] in (500, 1000)
    assert told["command"].startswith(f"gearshift train {args[0]} --seed 5 --steps 1000")
    again = gearshift("train", *args, *few, "--out", "two")
    assert again.returncode == 0, again.stderr
    assert any(name in again.stdout for name in ("dqn", "ppo"))
    for name in ("agent.safetensors", "curve.svg", "standings.json"):
        assert (folder / "one" / name).read_bytes() == (folder / "two" / name).read_bytes()


def test_train_rewrite_tells_what_each_spends(
    folder: Path, gearshift: Callable[..., Result]
) -> None:
    write_profiles(folder / "regions.json", regions("one", "two", "three", "four"), {})
    few = ("--steps", "1000", "--episodes", "1", "--profiles", "regions.json")
    result = gearshift("train", "rewrite", *few)
    assert result.returncode == 0, result.stderr
    assert "1 models nobody trained on" in " ".join(result.stdout.split())
    for column in ("share", "measurements", "build_s"):
        assert column in result.stdout


def test_train_rewrite_says_how_to_record_regions(
    folder: Path, gearshift: Callable[..., Result], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("gearshift.sim.rewrite_profiles.SHIPPED", folder / "none.json")
    result = gearshift("train", "rewrite")
    assert result.returncode == 2
    assert "gearshift train rewrite --record" in " ".join(result.stderr.split())


def test_train_unroll_says_how_to_record_kernels(
    folder: Path, gearshift: Callable[..., Result], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("gearshift.sim.unroll_profiles.SHIPPED", folder / "none.json")
    result = gearshift("train", "unroll")
    assert result.returncode == 2
    assert "gearshift train unroll --record" in " ".join(result.stderr.split())


@pytest.mark.parametrize(
    ("args", "said"),
    [
        (("place",), "no agent for 'place'"),
        (("split", "--record", "--profiles", "p.json"), "exclude each other"),
        (("split", "--profiles", "missing.json"), "cannot read 'missing.json'"),
        (("split", "--profiles", "broken.json"), "holds no profiles"),
        (("rewrite", "--profiles", "broken.json"), "holds no profiles"),
        (("rewrite", "--balance", "1"), "--balance is no part of what the rewrite agent earns"),
        (("unroll", "--transfer", "1"), "--transfer is no part of what the unroll agent earns"),
        (("unroll", "--profiles", "broken.json"), "holds no profiles"),
    ],
)
def test_train_says_what_is_wrong(
    folder: Path, gearshift: Callable[..., Result], args: tuple[str, ...], said: str
) -> None:
    (folder / "broken.json").write_text("{}")
    result = gearshift("train", *args)
    assert result.returncode == 2
    assert said in " ".join(result.stderr.split())


@pytest.mark.parametrize(
    ("role", "profiles", "served"),
    [
        (SPLIT, (), lambda home: Splitter(home, "this machine").dqn),
        (
            REWRITE,
            ("--profiles", "regions.json"),
            lambda home: Rewriter(home, "this machine").dqn,
        ),
        (
            UNROLL,
            ("--profiles", "kernels.json"),
            lambda home: Unroller(home, "this machine").actor,
        ),
    ],
    ids=["split", "rewrite", "unroll"],
)
def test_a_trained_agent_can_be_installed(
    folder: Path,
    gearshift: Callable[..., Result],
    monkeypatch: pytest.MonkeyPatch,
    role: Role,
    profiles: tuple[str, ...],
    served: Callable[[Path], Dqn | Actor],
) -> None:
    monkeypatch.setenv("GEARSHIFT_HOME", str(folder / "home"))
    write_profiles(folder / "regions.json", regions("one", "two", "three", "four"), {})
    write_profiles(folder / "kernels.json", kernels(), {})
    few = ("--steps", "1000", "--episodes", "1", "--out", "made", "--install")
    result = gearshift("train", role.knob, *few, *profiles)
    assert result.returncode == 0, result.stderr
    installed = folder / "home" / "agents" / f"{role.knob}.safetensors"
    assert f"wrote {installed}" in result.stderr
    assert installed.read_bytes() == (folder / "made" / "agent.safetensors").read_bytes()
    kept = role.read(installed).network
    found = served(folder / "home").online
    assert all(map(np.array_equal, found.parameters, kept.parameters))
    assert installed.exists(), "it is not refused"


@pytest.mark.parametrize("command", [("train", "split"), ("bench", "split")])
def test_a_seed_below_nothing_is_refused(
    gearshift: Callable[..., Result], command: tuple[str, ...]
) -> None:
    result = gearshift(*command, "--seed", "-1")
    assert result.returncode == 2
    assert "seed" in result.stderr


@pytest.mark.parametrize("option", [("--out", "made"), ("--install",)])
def test_where_nothing_can_be_written_the_training_does_not_begin(
    gearshift: Callable[..., Result], monkeypatch: pytest.MonkeyPatch, option: tuple[str, ...]
) -> None:
    wanted = "agents" if option == ("--install",) else "made"

    def refuse(*, dir: Path) -> object:
        if dir.name == wanted:
            raise PermissionError(13, "Permission denied")
        return nullcontext()

    monkeypatch.setattr("gearshift.training.TemporaryFile", refuse)
    result = gearshift("train", "split", *option)
    assert result.returncode == 2
    assert "cannot write to the folder" in result.stderr
    assert "of the oracle" not in result.stderr, "no time was spent on it"


@pytest.mark.soak
@pytest.mark.timeout(3600)
def test_the_shipped_agent_is_made_again_from_its_seed(folder: Path) -> None:
    """Byte for byte, on a machine that rounds as the one it was made on."""
    command = [sys.executable, "-c", "from gearshift.cli import main; main()"]
    command += ["train", "split", "--seed", "1", "--out", "made"]
    subprocess.run(command, cwd=folder, check=True, timeout=3600)
    assert (folder / "made" / "agent.safetensors").read_bytes() == SHIPPED.read_bytes()
