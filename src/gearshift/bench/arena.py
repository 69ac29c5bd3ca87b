"""Contenders side by side: each in its own process, stopped while others are measured.

Must not know what is compared with what.
"""

import json
import os
import signal
import subprocess
import sys
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

COMMAND = (sys.executable, "-W", "ignore", "-m", "gearshift.bench.contender")


@dataclass(frozen=True, slots=True, kw_only=True)
class Setting:
    """What a contender is: a peer, and how it is set; None leaves the peer's own default."""

    kind: str
    threads: int | None = None
    spin: bool | None = None
    warm_up: int = 5


class Contender:
    """`folder` is where those of one model leave what they share."""

    def __init__(self, model: str, setting: Setting, folder: Path) -> None:
        self._kind = setting.kind
        self._log = folder / f"{setting.kind}.log"
        with self._log.open("wb") as log:
            self._process = subprocess.Popen(
                COMMAND,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
                env={**os.environ, "GEARSHIFT_HOME": str(folder / "home")},
                start_new_session=True,
            )
        try:
            order = {"model": model, "folder": str(folder), **asdict(setting)}
            self.ready_s = self._ask(json.dumps(order))["ready_s"]
            self._signal(signal.SIGSTOP)
        except BaseException:
            self.close()
            raise

    def run(self, seconds: float) -> dict[str, Any]:
        self._signal(signal.SIGCONT)
        answer = self._ask(str(seconds))
        self._signal(signal.SIGSTOP)
        return answer

    def close(self) -> None:
        self._signal(signal.SIGKILL)
        self._process.wait()

    def _ask(self, line: str) -> dict[str, Any]:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(line + "\n")
        self._process.stdin.flush()
        answer = self._process.stdout.readline()
        if not answer:
            said = self._log.read_text(errors="replace").strip().splitlines()
            raise RuntimeError(f"{self._kind} ended: {said[-1] if said else 'without a word'}")
        result: dict[str, Any] = json.loads(answer)
        return result

    def _signal(self, number: int) -> None:
        """To the contender and all its children."""
        os.killpg(self._process.pid, number)
