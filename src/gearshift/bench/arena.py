"""Contenders side by side: each in its own process, stopped while others are measured.

Must not know what is compared with what.
"""

import json
import os
import select
import signal
import subprocess
import sys
from dataclasses import asdict, dataclass
from itertools import count
from pathlib import Path
from typing import Any

from gearshift.errors import GearshiftError

PATIENCE_S = 900.0
NUMBERS = count()
COMMAND = (sys.executable, "-W", "ignore", "-m", "gearshift.bench.contender")


@dataclass(frozen=True, slots=True, kw_only=True)
class Setting:
    """What a contender is: a peer, and how it is set; None leaves the peer's own default."""

    kind: str
    threads: int | None = None
    spin: bool | None = None
    warm_up: int = 5
    cold: bool = False
    """Whether its first call on what it has not seen yet counts, and nothing that was compiled
    before may help."""
    sizes: int | None = None
    """With which of two sizes of inputs it begins; None: those of the model's example."""
    instead: str = ""
    """Another model than the others', if it runs one."""


class Contender:
    """`folder` is where those of one model leave what they share; `home`, what Gearshift keeps.

    Several may be made at once: each loads its libraries, and waits to be opened.
    """

    def __init__(
        self, model: str, setting: Setting, folder: Path, home: Path | None = None
    ) -> None:
        self._kind = setting.kind
        self._order = {"model": model, "folder": str(folder), **asdict(setting)}
        self.ready_s = 0.0
        """How long it took to open."""
        self.batch: int | None = None
        """The first size of the model's first input."""
        own = folder / f"{setting.kind}-{next(NUMBERS)}"
        self._log = own.with_name(f"{own.name}.log")
        environment = {**os.environ, "GEARSHIFT_HOME": str(home or folder / "home")}
        if setting.cold:
            environment["TORCHINDUCTOR_CACHE_DIR"] = str(own)
        with self._log.open("wb") as log:
            self._process = subprocess.Popen(
                COMMAND,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
                env=environment,
                start_new_session=True,
            )

    def arrive(self) -> None:
        """Waits until it has loaded its libraries."""
        self._hear()

    def open(self) -> None:
        """It gets the model ready, and then stands still until it is to run."""
        self._say(json.dumps(self._order))
        answer = self._hear()
        self.ready_s, self.batch = answer["ready_s"], answer["batch"]
        self._signal(signal.SIGSTOP)

    def become(self, word: str) -> None:
        """Something else from here on; see the contender's words."""
        self._say(word)

    def run(self, seconds: float) -> dict[str, Any]:
        self.begin(seconds)
        return self.end()

    def begin(self, seconds: float) -> None:
        """Runs from here on; `end` waits for it."""
        self._signal(signal.SIGCONT)
        self._say(str(seconds))

    def end(self) -> dict[str, Any]:
        answer = self._hear()
        self._signal(signal.SIGSTOP)
        return answer

    def close(self) -> None:
        if self._process.poll() is None:
            self._signal(signal.SIGKILL)
            self._process.wait()

    def _say(self, line: str) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(line + "\n")
        self._process.stdin.flush()

    def _hear(self) -> dict[str, Any]:
        assert self._process.stdout is not None
        came, _, _ = select.select([self._process.stdout], [], [], PATIENCE_S)
        answer = self._process.stdout.readline() if came else ""
        if not answer:
            said = self._log.read_text(errors="replace").strip().splitlines()
            how = "ended" if came else f"was silent for {PATIENCE_S:.0f} s"
            raise GearshiftError(f"{self._kind} {how}: {said[-1] if said else 'without a word'}")
        result: dict[str, Any] = json.loads(answer)
        return result

    def _signal(self, number: int) -> None:
        """To the contender and all its children."""
        os.killpg(self._process.pid, number)
