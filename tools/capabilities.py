"""Prints every capability id with the tests that exercise it, and those that have none.

`make capabilities` runs the marked tests, so that a listed test is a passing one. The ids are
those of docs/capabilities.md, which also says how a user gets each.
"""

import re
import sys
from collections import defaultdict
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[1]
ROW = re.compile(r"^\| ((?:core|split|region|rnn|place|edge|serve|scale)\.[a-z0-9-]+) \| (.*) \|$")


class Collector:
    """Which test carries which mark, and whether it passed."""

    def __init__(self) -> None:
        self.marks: dict[str, set[str]] = defaultdict(set)
        self.passed: dict[str, bool] = {}

    def pytest_collection_modifyitems(self, items: list[Any]) -> None:
        for item in items:
            for mark in item.iter_markers("capability"):
                self.marks[mark.args[0]].add(item.nodeid)
        items[:] = [item for item in items if item.get_closest_marker("capability")]

    def pytest_runtest_logreport(self, report: Any) -> None:
        self.passed[report.nodeid] = self.passed.get(report.nodeid, True) and report.passed


def main() -> int:
    text = (ROOT / "docs" / "capabilities.md").read_text()
    ids = [match[1] for match in map(ROW.match, text.splitlines()) if match]
    collector = Collector()
    pytest.main(["-q", "--no-header", "-m", "capability", str(ROOT / "tests")], [collector])
    unknown = set(collector.marks) - set(ids)
    print()
    for identifier in ids:
        tests = sorted(collector.marks.get(identifier, ()))
        good = [test for test in tests if collector.passed.get(test)]
        print(f"{identifier:24} {len(good)} passing" if good else f"{identifier:24} -")
        for test in tests:
            print(f"    {'ok  ' if collector.passed.get(test) else 'FAIL'} {test}")
    for identifier in sorted(unknown):
        print(f"unknown id on a test: {identifier}")
    failed = [test for test, good in collector.passed.items() if not good]
    return 1 if unknown or failed else 0


if __name__ == "__main__":
    sys.exit(main())
