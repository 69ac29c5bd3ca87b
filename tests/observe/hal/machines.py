"""Folders that look like /proc and /sys of machines we do not have.

Knows the kernel's formats; must not know the sources that read them.
"""

from pathlib import Path


def write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


def write_stat(proc: Path, busy: dict[int, int], idle: dict[int, int], *, stolen: int = 0) -> None:
    """Busy ticks are spread over user, nice, system and softirq; `stolen` are of each core."""
    lines = ["cpu  0 0 0 0 0 0 0 0 0 0"]
    for core, ticks in busy.items():
        quarter = ticks // 4
        rest = ticks - 3 * quarter
        lines.append(
            f"cpu{core} {rest} {quarter} {quarter} {idle[core]} 3 0 {quarter} {stolen} 0 0"
        )
    write(proc / "stat", "\n".join([*lines, "intr 1 0 0", "ctxt 5"]) + "\n")


def write_task(
    proc: Path, pid: int, tid: int, *, run_s: float, delay_s: float = 0.0, core: int = 0
) -> None:
    folder = proc / str(pid) / "task" / str(tid)
    write(folder / "schedstat", f"{int(run_s * 1e9)} {int(delay_s * 1e9)} 7\n")
    fields = ["S", *["0"] * 35, str(core), *["0"] * 13]
    write(folder / "stat", f"{tid} (a (strange) name) {' '.join(fields)}\n")
    children = folder / "children"
    if not children.exists():
        write(children, "")


def write_rapl(sys: Path, domain: str, name: str, energy_uj: int, full_uj: int = 10**9) -> None:
    folder = sys / "class" / "powercap" / domain
    write(folder / "name", f"{name}\n")
    write(folder / "energy_uj", f"{energy_uj}\n")
    write(folder / "max_energy_range_uj", f"{full_uj}\n")


def write_clock(sys: Path, core: int, khz: int) -> None:
    write(sys / f"devices/system/cpu/cpu{core}/cpufreq/scaling_cur_freq", f"{khz}\n")


def write_cache(sys: Path, index: int, level: int, kind: str, size: str) -> None:
    folder = sys / f"devices/system/cpu/cpu0/cache/index{index}"
    for name, text in (("level", str(level)), ("type", kind), ("size", size)):
        write(folder / name, f"{text}\n")


def write_pressure(proc: Path, total_us: int) -> None:
    averages = "avg10=0.00 avg60=0.00 avg300=0.00"
    lines = [f"some {averages} total={total_us}", f"full {averages} total=0"]
    write(proc / "pressure" / "cpu", "\n".join(lines) + "\n")
