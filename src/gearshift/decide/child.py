"""The control plane's process: `python -m gearshift.decide.child`, low in priority.

Reads a line, thinks, answers with a line. Ends when nobody speaks to it any more.
"""

import os
import sys
from contextlib import suppress
from pathlib import Path

from gearshift.decide.messages import read_hello, read_news, write_proposal
from gearshift.decide.mind import Mind
from gearshift.observe.store import open_store

NICENESS = 10


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
        )
        for line in sys.stdin:
            snapshot, outcomes = read_news(line)
            for outcome in outcomes:
                mind.hear(outcome)
            print(write_proposal(mind.see(snapshot)), flush=True)
        mind.save()


if __name__ == "__main__":
    main()
