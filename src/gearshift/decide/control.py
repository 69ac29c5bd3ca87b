"""The serving process's end of the control plane: a child that may be slow, wrong or dead.

Must not know what is proposed. Never waits for the child: a question unanswered is one not asked.
"""

import logging
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from queue import SimpleQueue
from typing import Protocol

from gearshift.decide.messages import Answer, Hello, read_answer, write_hello, write_news
from gearshift.decide.mind import Mind
from gearshift.decide.policy import Outcome
from gearshift.ir.measurement import Measurement
from gearshift.ir.snapshot import LayerSeen, Sample, Snapshot
from gearshift.observe.sampler import ASLEEP_S

log = logging.getLogger("gearshift")
CHILD = (sys.executable, "-P", "-m", "gearshift.decide.child")
"""-P: what lies in the folder the user is in must not stand in for a library."""
PATIENCE_S, SAVE_S = 15.0, 2.0
"""Longer than the child may have to wait for the store."""
ASK_S, BACK_OFF_S, LONGEST_S = 0.4, 1.0, 60.0
MAX_WAITING = 512
"""Samples, and regions measured, that are kept while the child is silent."""
ABANDONED: list["subprocess.Popen[str]"] = []
"""Of a parent process: never to be touched again."""


class Control(Protocol):
    def ask(self, snapshot: Snapshot, outcomes: Sequence[Outcome]) -> Answer | None:
        """Tells what was seen; gives the answer to an earlier question, if one has come."""

    def close(self) -> None: ...

    def abandon(self) -> None:
        """In a fork of this process."""


class InProcess:
    """A mind on the loop's own thread: for tests."""

    def __init__(self, mind: Mind) -> None:
        self.mind = mind

    def ask(self, snapshot: Snapshot, outcomes: Sequence[Outcome]) -> Answer | None:
        for outcome in outcomes:
            self.mind.hear(outcome)
        answer = self.mind.see(snapshot)
        self.mind.tidy(snapshot.at_s)
        return answer

    def close(self) -> None:
        return None

    def abandon(self) -> None:
        return None


class ChildProcess:
    """Starts at once, since that takes a while; can be asked after `greet`."""

    def __init__(self, command: Sequence[str] = CHILD) -> None:
        self._command = command
        self._hello: Hello | None = None
        self._process: subprocess.Popen[str] | None = None
        self._answers: list[str] = []
        self._asked_s: float | None = None
        self._seen_s = self._start_s = 0.0
        self._back_off_s = BACK_OFF_S
        self._samples: tuple[Sample, ...] = ()
        self._measured: tuple[Measurement, ...] = ()
        self._layers: tuple[LayerSeen, ...] = ()
        self._served_s = 0.0
        """Of calls since the child was last told."""
        self._told: Snapshot | None = None
        self._outcomes: list[Outcome] = []
        self._lines: SimpleQueue[str | None] = SimpleQueue()
        self._cpu_s = self._ended_cpu_s = 0.0
        self._start()

    def greet(self, hello: Hello) -> None:
        self._hello = hello
        self._say(write_hello(hello))

    @property
    def pid(self) -> int | None:
        return None if self._process is None else self._process.pid

    def ask(self, snapshot: Snapshot, outcomes: Sequence[Outcome]) -> Answer | None:
        asleep_s = snapshot.at_s - self._seen_s
        self._seen_s = snapshot.at_s
        if self._asked_s is not None and asleep_s > ASLEEP_S:
            self._asked_s += asleep_s  # we were stopped, and so may the child have been
        self._outcomes += outcomes
        self._samples = (*self._samples, *snapshot.samples)[-MAX_WAITING:]
        self._measured = (*self._measured, *snapshot.measured)[-MAX_WAITING:]
        self._layers = snapshot.layers or self._layers
        self._served_s += min(snapshot.served_s, asleep_s)  # several callers pass it at once
        if not self._alive(snapshot.at_s):
            return None
        answer = None
        if self._asked_s is not None and self._answers:
            self._asked_s, self._back_off_s = None, BACK_OFF_S
            answer = read_answer(self._answers.pop())
            self._cpu_s = answer.cpu_s
            answer = replace(answer, cpu_s=self._ended_cpu_s + self._cpu_s)
        if self._asked_s is None and self._worth_telling(snapshot):
            waiting = replace(snapshot, samples=self._samples, measured=self._measured)
            self._tell(replace(waiting, layers=self._layers, served_s=self._served_s))
        return answer

    def close(self) -> None:
        """Gives the child a moment to save what it learned."""
        process = self._process
        if process is not None:
            self._lines.put(None)
            with suppress(subprocess.TimeoutExpired):
                process.wait(SAVE_S)
            self._end(process)

    def _worth_telling(self, snapshot: Snapshot) -> bool:
        """News at once; what was measured, a few times a second: each question costs both sides."""
        told = self._told
        return (
            told is None
            or bool(self._outcomes)
            or told.situation != snapshot.situation
            or told.plan != snapshot.plan
            or snapshot.at_s - told.at_s >= ASK_S
        )

    def _tell(self, snapshot: Snapshot) -> None:
        self._say(write_news(snapshot, self._outcomes))
        self._told = snapshot
        self._asked_s = snapshot.at_s
        self._samples, self._measured, self._outcomes = (), (), []
        self._layers, self._served_s = (), 0.0

    def _say(self, line: str) -> None:
        """By a thread of its own: a pipe that is full must not hold anybody up."""
        self._lines.put(line)

    def _alive(self, now_s: float) -> bool:
        """Starts the child, or another one if it is gone or silent for too long."""
        process = self._process
        if process is not None:
            silent = self._asked_s is not None and now_s - self._asked_s > PATIENCE_S
            if process.poll() is None and not silent:
                return True
            log.warning("the control plane %s; calls go on", "is silent" if silent else "died")
            self._end(process)
            self._put_off(now_s)
        if now_s < self._start_s:
            return False
        if not self._start():
            self._put_off(now_s)
        return self._process is not None

    def _put_off(self, now_s: float) -> None:
        self._start_s = now_s + self._back_off_s
        self._back_off_s = min(2 * self._back_off_s, LONGEST_S)

    def _start(self) -> bool:
        """False if the system does not let us now."""
        self._answers, self._asked_s, self._told = [], None, None
        self._served_s = 0.0
        try:
            process = self._popen()
        except OSError as error:
            log.warning("the control plane cannot be started: %s; calls go on", error)
            return False
        self._process, self._lines = process, SimpleQueue()
        if self._hello is not None:
            self._say(write_hello(self._hello))
        answers, lines = self._answers, self._lines

        def speak() -> None:
            assert process.stdin is not None
            with suppress(OSError, ValueError):  # it died, or was closed
                while (line := lines.get()) is not None:
                    process.stdin.write(line + "\n")
                    process.stdin.flush()
                process.stdin.close()

        def listen() -> None:
            assert process.stdout is not None
            for line in process.stdout:
                answers.append(line)

        for work in (listen, speak):
            threading.Thread(target=work, name="gearshift control", daemon=True).start()
        return True

    def _popen(self) -> subprocess.Popen[str]:
        """Ctrl-C is for who called us: the child is born deaf to it, and ends with its input."""
        pipe = subprocess.PIPE
        before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
        try:
            return subprocess.Popen(self._command, stdin=pipe, stdout=pipe, text=True)
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, before)

    def abandon(self) -> None:
        """In a fork of this process: the child is the parent's, which must be the only one to hold
        its pipes. They are not closed as files: the parent's threads may have been using them."""
        process, self._process = self._process, None
        if process is not None:
            ABANDONED.append(process)
            for pipe in (process.stdin, process.stdout):
                assert pipe is not None
                os.close(pipe.fileno())

    def _end(self, process: subprocess.Popen[str]) -> None:
        self._process = None
        self._ended_cpu_s, self._cpu_s = self._ended_cpu_s + self._cpu_s, 0.0
        process.kill()
        process.wait()
        self._lines.put(None)
        for pipe in (process.stdin, process.stdout):
            with suppress(OSError):  # what was written and never read
                assert pipe is not None
                pipe.close()
