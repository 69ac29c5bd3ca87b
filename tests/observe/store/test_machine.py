"""Machines and versions are named the same at every start, and differ where it matters.
Knows files of the kernel as a made-up tree.
"""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from gearshift import settings
from gearshift.observe.store import machine, machine_fields, machine_key, versions_key


def test_the_key_is_short_and_stable() -> None:
    assert machine_key() == machine_key()
    assert len(machine_key()) == 12
    assert machine_fields()["cores"] == str(len(os.sched_getaffinity(0)))


def test_fewer_cores_are_another_machine() -> None:
    cores = os.sched_getaffinity(0)
    whole = machine_key()
    os.sched_setaffinity(0, {min(cores)})
    try:
        assert (machine_key() == whole) == (len(cores) == 1)
    finally:
        os.sched_setaffinity(0, cores)


@pytest.mark.parametrize(
    ("groups", "files", "expected"),
    [
        ("0::/a/b\n", {"a/b/cpu.max": "max 100000\n", "a/cpu.max": "150000 100000\n"}, 1.5),
        ("0::/a/b\n", {"a/b/cpu.max": "50000 100000\n", "a/cpu.max": "max 100000\n"}, 0.5),
        ("0::/\n", {"cpu.max": "max 100000\n"}, None),
        (
            "2:cpu,cpuacct:/x\n0::/\n",
            {"cpu,cpuacct/x/cpu.cfs_quota_us": "5000", "cpu,cpuacct/x/cpu.cfs_period_us": "20000"},
            0.25,
        ),
        ("1:cpu:/\n", {"cpu/cpu.cfs_quota_us": "-1\n", "cpu/cpu.cfs_period_us": "100000\n"}, None),
        ("nonsense\n\n", {}, None),
        ("", {}, None),
    ],
)
def test_the_tightest_quota_counts(
    tmp_path: Path, groups: str, files: dict[str, str], expected: float | None
) -> None:
    folders = {f"sys/fs/cgroup/{name}": text for name, text in files.items()}
    for name, text in {"proc/self/cgroup": groups, **folders}.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    assert machine.cpu_quota(tmp_path) == expected
    shown = "none" if expected is None else f"{expected:.2f}"
    assert machine_fields(tmp_path)["cpu_quota"] == shown


def test_versions_are_told_without_importing_anything() -> None:
    words = dict(word.split("=") for word in versions_key().split())
    assert words.keys() == {"python", *machine.LIBRARIES}
    assert words["python"] == sys.version.split()[0]
    stand_in = (
        "import sys, types; package = types.ModuleType('gearshift');"
        f"package.__path__ = [{str(Path(settings.__file__).parent)!r}];"
        "sys.modules['gearshift'] = package;"
        "from gearshift.observe.store import versions_key; versions_key();"
        "print(sorted({'torch', 'onnxruntime', 'openvino', 'numpy'} & sys.modules.keys()))"
    )
    done = subprocess.run([sys.executable, "-c", stand_in], capture_output=True, text=True)
    assert done.stdout == "[]\n"


def test_home_is_where_the_user_says(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GEARSHIFT_HOME", "/some/where")
    assert settings.home() == Path("/some/where")
    monkeypatch.delenv("GEARSHIFT_HOME")
    monkeypatch.setenv("HOME", "/user")
    assert settings.home() == Path("/user/.cache/gearshift")
