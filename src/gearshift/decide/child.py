"""The control plane's process: `python -m gearshift.decide.child`, low in priority.

Reads a line, thinks, answers with a line. Ends when nobody speaks to it any more.
"""

import json
import logging
import os
import sys
from contextlib import suppress
from pathlib import Path

from gearshift.decide.messages import read_hello, read_news, write_answer
from gearshift.decide.mind import Mind
from gearshift.ir.roofline import Roofline
from gearshift.observe.hal.roofline import measure_roofline
from gearshift.observe.store import Store, open_store

log = logging.getLogger("gearshift")
NICENESS = 10
ROOFLINE = "roofline by large products"
"""The name it is kept by; under `roofline` a store may hold a lower one, of small products."""


def main() -> None:
    """Low in priority once it is up: getting there is what a new runtime waits for."""
    answers, sys.stdout = sys.stdout, sys.stderr  # nothing else may get between the answers
    line = sys.stdin.readline()
    if not line:
        return
    hello = read_hello(line)
    with open_store(Path(hello.home)) as store:
        mind = Mind(
            policy=hello.policy,
            plans=hello.plans,
            num_cores=hello.num_cores,
            objective=hello.objective,
            store=store,
            key=hello.key,
            identities=hello.identities,
            subject=hello.subject,
            pieces=hello.pieces,
            forming=hello.forming,
            stacks=hello.stacks,
            signature=hello.signature,
            home=Path(hello.home),
        )
        machine = hello.key["machine"]
        mind.table.roofline = _kept_roofline(store, machine) or _measured_roofline(store, machine)
        with suppress(OSError):
            os.nice(NICENESS)
        for line in sys.stdin:
            snapshot, outcomes = read_news(line)
            for outcome in outcomes:
                mind.hear(outcome)
            answer = mind.see(snapshot)
            print(write_answer(answer), file=answers, flush=True)
            mind.tidy(snapshot.at_s)
        mind.save()


def _kept_roofline(store: Store, machine: str) -> Roofline | None:
    try:
        return Roofline.from_dict(json.loads(store.fact(machine, ROOFLINE) or ""))
    except (TypeError, KeyError, ValueError):  # none yet, or not what we wrote
        return None


def _measured_roofline(store: Store, machine: str) -> Roofline | None:
    """Once on a machine, before its first model is called. It can be done without."""
    try:
        roofline = measure_roofline()
    except Exception:
        log.exception("the roofline cannot be measured")
        return None
    store.set_fact(machine, ROOFLINE, json.dumps(roofline.to_dict()))
    return roofline


if __name__ == "__main__":
    main()
