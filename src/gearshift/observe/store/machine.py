"""What this machine and its software are called, so that measurements are not mistaken.

Must not import the libraries it names, nor measure anything.
"""

import hashlib
import os
import platform
from functools import cache
from importlib import metadata
from pathlib import Path

LIBRARIES = ("gearshift", "onnxruntime", "openvino", "torch")
GIB = 1 << 30


def machine_key() -> str:
    """Short, and the same at every start on this machine with these cores and limits."""
    text = "\n".join(f"{name}={value}" for name, value in sorted(machine_fields().items()))
    return hashlib.sha256(text.encode()).hexdigest()[:12]


def machine_fields(root: Path = Path("/")) -> dict[str, str]:
    """What the key is made of. Memory in whole GiB: kernels differ in what they keep."""
    quota = cpu_quota(root)
    return {
        "cpu": _cpu_model(root),
        "cores": str(_num_cores()),
        "memory_gib": str(round(_memory_bytes() / GIB)),
        "cpu_quota": "none" if quota is None else f"{quota:.2f}",
    }


@cache
def versions_key() -> str:
    found = {"python": platform.python_version()}
    for name in LIBRARIES:
        try:
            found[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            found[name] = "none"
    return " ".join(f"{name}={version}" for name, version in sorted(found.items()))


def cpu_quota(root: Path = Path("/")) -> float | None:
    """Cores' worth of time the tightest cgroup around this process allows; None: no limit."""
    quotas = []
    for line in _text(root / "proc/self/cgroup").splitlines():
        number, controllers, path = [*line.split(":", 2), "", ""][:3]
        if number == "0":
            for folder in _folders(root, ("sys/fs/cgroup", "sys/fs/cgroup/unified"), path):
                quotas.append(_share(_text(folder / "cpu.max").split()))
        elif "cpu" in controllers.split(","):
            for folder in _folders(root, ("sys/fs/cgroup/cpu", "sys/fs/cgroup/cpu,cpuacct"), path):
                names = ("cpu.cfs_quota_us", "cpu.cfs_period_us")
                quotas.append(_share([_text(folder / name).strip() for name in names]))
    return min((quota for quota in quotas if quota is not None), default=None)


def _folders(root: Path, bases: tuple[str, ...], path: str) -> list[Path]:
    """The cgroup and all around it: each may set a limit."""
    inner = Path(path.lstrip("/"))
    return [root / base / part for base in bases for part in (inner, *inner.parents)]


def _share(words: list[str]) -> float | None:
    if len(words) != 2 or not all(word.isdigit() for word in words) or int(words[1]) == 0:
        return None
    return int(words[0]) / int(words[1])


def _cpu_model(root: Path) -> str:
    for line in _text(root / "proc/cpuinfo").splitlines():
        name, _, value = line.partition(":")
        if name.strip() == "model name":
            return value.strip()
    return platform.processor() or platform.machine()


def _num_cores() -> int:
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def _memory_bytes() -> int:
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")


def _text(path: Path) -> str:
    try:
        return path.read_text(errors="replace")
    except OSError:
        return ""
