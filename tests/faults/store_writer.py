"""A process that writes to a store: started by tests, ended by them or by a signal.
Knows no torch: the package around the store is stood in for, so that it starts at once.
"""

import itertools
import sys
import time
from pathlib import Path
from types import ModuleType

SOURCE = Path(__file__).parents[2] / "src" / "gearshift"
MACHINE, VERSIONS = "machine", "versions"


def write_forever(folder: Path, name: str) -> None:
    """Says the number of each row once it is kept."""
    from gearshift.observe.store import DecisionRow, open_store
    from gearshift.plan.decision import Decision

    store = open_store(folder)
    for number in itertools.count(1):
        made = Decision(at_s=0.0, plan="p", reason=str(number), outcome="kept")
        if store.add_decision(DecisionRow(machine=MACHINE, graph=name, decision=made)):
            print(number, flush=True)


def write_together(folder: Path, name: str, num_rows: int) -> None:
    """Waits for the others, then writes rows of all and rows of its own; says what was kept."""
    from gearshift.observe.store import PlanKey, open_store
    from gearshift.plan.plan import Plan, Region

    plan = Plan(regions=(Region(ops=("a", "b")),))
    shared = PlanKey(machine=MACHINE, versions=VERSIONS, graph="shared", signature="s")
    own = PlanKey(machine=MACHINE, versions=VERSIONS, graph=name, signature="s")
    while not (folder / "go").exists():
        time.sleep(0.005)
    store = open_store(folder)
    kept = 0
    for number in range(num_rows):
        kept += store.add_plan(shared, plan, [0.001 * (number + 1)], max_error=0.0)
        store.add_plan(own, plan, [0.001], max_error=0.0)
        kept += 0 if store.plans(shared) else -1
    store.close()
    print(kept, flush=True)


if __name__ == "__main__":
    package = ModuleType("gearshift")
    package.__path__ = [str(SOURCE)]
    sys.modules["gearshift"] = package
    job, folder, name, *more = sys.argv[1:]
    if job == "forever":
        write_forever(Path(folder), name)
    else:
        write_together(Path(folder), name, int(more[0]))
