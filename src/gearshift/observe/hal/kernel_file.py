"""A small file of the kernel, opened once and read again and again from its start.

Must not know what is in it.
"""

import os
from pathlib import Path

PROC = Path("/proc")
SYS = Path("/sys")


class KernelFile:
    """Where there is nothing to read, `read` gives None and `reason` says why."""

    __slots__ = ("_fd", "reason")

    def __init__(self, path: Path | str) -> None:
        self._fd, self.reason = -1, ""
        try:
            self._fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        except OSError as error:
            self.reason = f"{path}: {error.strerror}"
            return
        if self.read(1) is None:
            self.reason = f"{path}: {self.reason}"

    def read(self, size: int = 4096) -> bytes | None:
        if self._fd < 0:
            return None
        try:
            return os.pread(self._fd, size, 0)
        except OSError as error:
            self.close(os.strerror(error.errno or 0))
            return None

    def read_all(self) -> bytes:
        """However long it is; such files give about a page at a time."""
        parts: list[bytes] = []
        try:
            while self._fd >= 0 and (part := os.pread(self._fd, 1 << 16, sum(map(len, parts)))):
                parts.append(part)
        except OSError as error:
            self.close(os.strerror(error.errno or 0))
        return b"".join(parts)

    def number(self) -> int | None:
        """The whole number that the file holds, if it holds one."""
        text = self.read(64)
        try:
            return None if text is None else int(text)
        except ValueError:
            return None

    def close(self, reason: str = "closed") -> None:
        if self._fd >= 0:
            os.close(self._fd)
            self._fd, self.reason = -1, reason

    @property
    def readable(self) -> bool:
        return self._fd >= 0
