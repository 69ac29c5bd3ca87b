"""Tests say themselves when a policy is to decide; nothing is kept beyond a test run."""

import os
import tempfile
from pathlib import Path

import pytest

os.environ["GEARSHIFT_POLICY"] = "keep"
os.environ["GEARSHIFT_HOME"] = tempfile.mkdtemp(prefix="gearshift-tests-")

ALONE = (
    "act/lower/test_divided.py::test_parts_run",
    "bench/test_arena.py",
    "faults/test_engines.py",
    "faults/test_policy.py",
    "faults/test_stores.py",
    "faults/test_swaps.py",
    "observe/hal",
    "test_adaptive.py",
    "test_cli.py::test_a_plan_slower",
    "test_cli.py::test_a_run_goes_on",
    "test_cli.py::test_a_terminal",
    "test_cli.py::test_an_interrupted",
    "test_cli.py::test_run",
    "test_live.py",
    "test_regions_live.py",
    "test_split_live.py",
)
"""Tests that look at the machine's load or at time: nothing may run beside them."""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    here = Path(__file__).parent
    for item in items:
        name = f"{item.path.relative_to(here).as_posix()}::{item.name}"
        if name.startswith(ALONE):
            item.add_marker(pytest.mark.alone)
