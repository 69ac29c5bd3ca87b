"""The kernel's performance events, through the bare system call: open, enable, read, close.

Must not know what is made of the counts. Counts are of this process: of the threads it has when an
event is opened, and of all threads and processes they start later.
"""

import ctypes
import errno
import fcntl
import os
import platform
import struct
from dataclasses import dataclass
from typing import NamedTuple

from gearshift.observe.hal.kernel_file import PROC

SYSCALL = {"Linux x86_64": 298}
MAX_THREADS = 32
"""Threads an event is opened on; bounds descriptors and the cost of a read."""

HARDWARE, SOFTWARE, CACHE = 0, 1, 3
L1D, LLC = 0, 2
MISSES = 1 << 16

ATTR = struct.Struct("=IIQQQQQIIQ")
"""perf_event_attr, first version: type, size, config, period, sample type, read format, flags,
wake-up, breakpoint type, breakpoint address."""
COUNT = struct.Struct("=QQQ")
"""Count, nanoseconds enabled, nanoseconds counted."""
READ_FORMAT = 0b11
DISABLED, INHERIT, NO_KERNEL, NO_HYPERVISOR = 1 << 0, 1 << 1, 1 << 5, 1 << 6
CLOSE_ON_EXEC = 1 << 3
ENABLE = 0x2400

REASONS = {
    errno.ENOENT: "this CPU, or the virtual machine around it, offers no such event",
    errno.ENODEV: "this CPU, or the virtual machine around it, offers no such event",
    errno.EOPNOTSUPP: "this CPU, or the virtual machine around it, offers no such event",
    errno.EACCES: "not permitted; see /proc/sys/kernel/perf_event_paranoid",
    errno.EPERM: "not permitted; see /proc/sys/kernel/perf_event_paranoid",
    errno.ENOSYS: "this kernel has no performance events",
}


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class EventKind:
    """Each exists once. One that happens inside the kernel must be counted there, if permitted."""

    name: str
    type: int
    config: int
    in_kernel: bool = False


CYCLES = EventKind(name="cycles", type=HARDWARE, config=0)
L1D_LOADS = EventKind(name="L1D loads", type=CACHE, config=L1D)
L1D_MISSES = EventKind(name="L1D misses", type=CACHE, config=L1D | MISSES)
LLC_LOADS = EventKind(name="LLC loads", type=CACHE, config=LLC)
LLC_MISSES = EventKind(name="LLC misses", type=CACHE, config=LLC | MISSES)
PAGE_FAULTS = EventKind(name="page faults", type=SOFTWARE, config=2)
CONTEXT_SWITCHES = EventKind(name="context switches", type=SOFTWARE, config=3, in_kernel=True)


class Count(NamedTuple):
    """`enabled_s` sums over threads: it passes only while one of them has a core."""

    value: float
    enabled_s: float


class PerfEvent:
    """Where it cannot be had, `read` gives None and `reason` says why."""

    def __init__(self, kind: EventKind, *, system: str | None = None) -> None:
        self.kind, self.reason = kind, ""
        self._fds: list[int] = []
        system = system or f"{platform.system()} {platform.machine()}"
        number = SYSCALL.get(system)
        if number is None:
            self.reason = f"how to open performance events is not known for {system}"
            return
        for thread_id in _thread_ids():
            fd, error = _open(kind, thread_id, number)
            if fd >= 0:
                self._fds.append(fd)
            elif error != errno.ESRCH:
                self.close(f"{kind.name}: {REASONS.get(error, os.strerror(error))}")
                return

    @property
    def readable(self) -> bool:
        return bool(self._fds)

    def read(self) -> Count | None:
        value, enabled_ns, running_ns = 0.0, 0, 0
        for fd in self._fds:
            count, enabled, running = COUNT.unpack(os.read(fd, COUNT.size))
            # With more events than the CPU has counters, each counts for part of the time only.
            value += count if running in (enabled, 0) else count * enabled / running
            enabled_ns, running_ns = enabled_ns + enabled, running_ns + running
        if not self._fds or (enabled_ns and not running_ns):
            return None
        return Count(value=value, enabled_s=enabled_ns * 1e-9)

    def close(self, reason: str = "closed") -> None:
        fds, self._fds = self._fds, []
        for fd in fds:
            os.close(fd)
        self.reason = self.reason or reason


def _thread_ids() -> list[int]:
    return sorted(int(entry) for entry in os.listdir(PROC / "self" / "task"))[:MAX_THREADS]


def _open(kind: EventKind, thread_id: int, number: int) -> tuple[int, int]:
    """A descriptor and 0, or -1 and the error."""
    fd, error = _syscall(kind, thread_id, number, NO_HYPERVISOR)
    if error in {errno.EACCES, errno.EPERM} and not kind.in_kernel:
        fd, error = _syscall(kind, thread_id, number, NO_HYPERVISOR | NO_KERNEL)
    if fd >= 0:
        fcntl.ioctl(fd, ENABLE, 0)
    return fd, error


def _syscall(kind: EventKind, thread_id: int, number: int, flags: int) -> tuple[int, int]:
    flags |= DISABLED | INHERIT
    attr = ATTR.pack(kind.type, ATTR.size, kind.config, 0, 0, READ_FORMAT, flags, 0, 0, 0)
    any_core, no_group = ctypes.c_int(-1), ctypes.c_int(-1)
    call = ctypes.CDLL(None, use_errno=True).syscall
    call.restype = ctypes.c_long
    fd = int(
        call(
            ctypes.c_long(number),
            ctypes.create_string_buffer(attr, ATTR.size),
            ctypes.c_int(thread_id),
            any_core,
            no_group,
            ctypes.c_ulong(CLOSE_ON_EXEC),
        )
    )
    return fd, ctypes.get_errno() if fd < 0 else 0
