"""How large the caches are, as sysfs tells, else as the C library does, else typical sizes.

Must not know how fast they are.
"""

import os
from pathlib import Path

from gearshift.ir.roofline import Caches
from gearshift.observe.hal.kernel_file import SYS

KIB, MIB = 1 << 10, 1 << 20
TYPICAL = {1: 32 * KIB, 2: 512 * KIB, 3: 8 * MIB}
SYSCONF = {1: "SC_LEVEL1_DCACHE_SIZE", 2: "SC_LEVEL2_CACHE_SIZE", 3: "SC_LEVEL3_CACHE_SIZE"}
SUFFIXES = {"K": KIB, "M": MIB}


def find_caches(*, sys: Path = SYS) -> Caches:
    told = _from_sysfs(sys / "devices" / "system" / "cpu" / "cpu0" / "cache")
    origin = "sysfs"
    if not told.keys() >= TYPICAL.keys():
        told, origin = _from_sysconf() | told, "sysfs and sysconf" if told else "sysconf"
    if not told.keys() >= TYPICAL.keys():
        told, origin = TYPICAL | told, f"{origin}, else typical sizes"
    return Caches(l1_bytes=told[1], l2_bytes=told[2], l3_bytes=told[3], origin=origin)


def _from_sysfs(folder: Path) -> dict[int, int]:
    sizes: dict[int, int] = {}
    for index in sorted(folder.glob("index*")):
        try:
            level, kind, size = ((index / n).read_text().strip() for n in ("level", "type", "size"))
        except OSError:
            continue
        if kind != "Instruction" and size[:-1].isdigit():
            sizes[int(level)] = int(size[:-1]) * SUFFIXES.get(size[-1], 1)
    return sizes


def _from_sysconf() -> dict[int, int]:
    """Not in a virtual machine's favour: the C library asks the CPU, not the hypervisor."""
    sizes: dict[int, int] = {}
    for level, name in SYSCONF.items():
        size = os.sysconf(name) if name in os.sysconf_names else 0
        if size > 0:
            sizes[level] = size
    return sizes
