"""The control plane's process: `python -m gearshift.decide.child`, low in priority.

Reads a line, thinks, answers with a line. Ends when nobody speaks to it any more.
"""

import json
import os
import sys
from contextlib import suppress
from pathlib import Path

from gearshift.decide.messages import read_hello, read_news, write_answer
from gearshift.decide.mind import Mind
from gearshift.ir.roofline import Roofline
from gearshift.observe.hal.roofline import measure_roofline
from gearshift.observe.store import Store, open_store

NICENESS = 10
ROOFLINE = "roofline"


def main() -> None:
    with suppress(OSError):
        os.nice(NICENESS)
    hello = read_hello(sys.stdin.readline())
    with open_store(Path(hello.home)) as store:
        mind = Mind(
            policy=hello.policy,
            plans=hello.plans,
            num_cores=hello.num_cores,
            objective=hello.objective,
            store=store,
            key=hello.key,
            identities=hello.identities,
        )
        mind.use(_roofline(store, hello.key["machine"]))
        for line in sys.stdin:
            snapshot, outcomes = read_news(line)
            for outcome in outcomes:
                mind.hear(outcome)
            print(write_answer(mind.see(snapshot)), flush=True)
        mind.save()


def _roofline(store: Store, machine: str) -> Roofline:
    """Measured once on a machine, then known."""
    with suppress(TypeError, KeyError, ValueError):
        return Roofline.from_dict(json.loads(store.fact(machine, ROOFLINE) or ""))
    roofline = measure_roofline()
    store.set_fact(machine, ROOFLINE, json.dumps(roofline.to_dict()))
    return roofline


if __name__ == "__main__":
    main()
