"""Contenders side by side: each in its own process, stopped while others are measured.

Must not know what is compared with what.
"""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass
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
    def __init__(self, model: str, setting: Setting, environment: Mapping[str, str]) -> None:
        pipe = subprocess.PIPE
        self._process = subprocess.Popen(
            COMMAND,
            stdin=pipe,
            stdout=pipe,
            stderr=subprocess.DEVNULL,
            text=True,
            env={**os.environ, **environment},
            start_new_session=True,
        )
        order = {
            "model": model,
            "kind": setting.kind,
            "threads": setting.threads,
            "spin": setting.spin,
            "warm_up": setting.warm_up,
        }
        self.ready_s = self._ask(json.dumps(order))["ready_s"]
        self._signal(signal.SIGSTOP)

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
            raise RuntimeError(f"a contender died with exit code {self._process.wait()}")
        result: dict[str, Any] = json.loads(answer)
        return result

    def _signal(self, number: int) -> None:
        """To the contender and all its children."""
        os.killpg(self._process.pid, number)
