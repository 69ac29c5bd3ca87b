"""Fixtures for the fault tests: backends that come and go, libraries loaded once."""

from collections.abc import Callable, Iterator

import pytest

from faults.models import mlp
from faults.survival import Counted, warm_up
from gearshift.act.backends import BACKENDS, Backend, register


@pytest.fixture(scope="session", autouse=True)
def _loaded() -> None:
    warm_up(*mlp())


@pytest.fixture
def registered() -> Iterator[Callable[[Backend], Backend]]:
    """Registers a backend for the length of a test."""
    before = dict(BACKENDS)

    def add(backend: Backend) -> Backend:
        register(backend)
        return backend

    yield add
    BACKENDS.clear()
    BACKENDS.update(before)


@pytest.fixture
def counted(registered: Callable[[Backend], Backend]) -> Counted:
    backend = Counted()
    registered(backend)
    return backend
