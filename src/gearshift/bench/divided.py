"""One region or model under every way to divide it over two engines, in turns.

Must not know what is compared with what.
"""

import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from math import ceil
from time import perf_counter
from typing import Any

import torch

from gearshift.act.prepared import Prepared
from gearshift.adaptive import subject_of
from gearshift.bench.score import Slices
from gearshift.decide.split.actions import NAMES, SPLITS
from gearshift.decide.split.sight import Subject
from gearshift.errors import GearshiftError
from gearshift.plan.legal import candidates
from gearshift.runtime import Runtime

log = logging.getLogger("gearshift")
BLOCK_S = 0.06
"""A plan runs for about so long before the next one's turn; at least a few calls."""
FEWEST = 3


@dataclass(slots=True, kw_only=True)
class Divided:
    name: str
    args: tuple[Any, ...]
    runtime: Runtime
    subject: Subject
    ready: Mapping[str, Prepared]
    """By the action's name; those that are illegal are missing."""

    def call(self, action: str) -> None:
        self.ready[action](*self.args)


@contextmanager
def divided(
    name: str,
    runtime: Runtime,
    args: tuple[Any, ...],
    *,
    backend: str,
    say: Callable[[str], None],
    only: Sequence[str] = NAMES,
) -> Iterator[Divided]:
    """The runtime decides nothing by itself; what is built here goes with it."""
    subject = subject_of(runtime, runtime.space)
    if subject is None:
        raise GearshiftError(f"{name}: cannot be divided over two engines on this machine")
    choices = subject.choices(candidates(runtime.space, SPLITS)).get(backend, {})
    ready: dict[str, Prepared] = {}
    for action in sorted(choices):
        if NAMES[action] in only:
            say(f"{name}, {backend}: building {NAMES[action]}")
            try:
                ready[NAMES[action]] = runtime.prepare(choices[action])
            except GearshiftError as refusal:
                log.warning("%s: %s refused: %s", name, NAMES[action], refusal)
    runtime.watch_live(False)
    try:
        with torch.no_grad():
            yield Divided(name=name, args=args, runtime=runtime, subject=subject, ready=ready)
    finally:
        for prepared in ready.values():
            prepared.release()


def in_blocks(calls: Mapping[str, Callable[[], Any]], rounds: int) -> dict[str, Slices]:
    """Each in turn for a few calls, in rotating order, so often; the first of a block, when the
    other's threads may still spin, does not count."""
    found = {name: Slices() for name in calls}
    sizes = {}
    for name, call in calls.items():
        call()
        start_s = perf_counter()
        call()
        sizes[name] = max(FEWEST, ceil(BLOCK_S / (perf_counter() - start_s)))
    names = list(calls)
    for turn in range(rounds):
        at = turn % len(names)
        for name in names[at:] + names[:at]:
            found[name].add({"call_s": block(calls[name], sizes[name]), "cpu_s": 0.0})
    return found


def block(call: Callable[[], Any], count: int) -> list[float]:
    call()
    return timed(call, count)


def timed(call: Callable[[], Any], count: int) -> list[float]:
    took_s = []
    for _ in range(count):
        start_s = perf_counter()
        call()
        took_s.append(perf_counter() - start_s)
    return took_s
