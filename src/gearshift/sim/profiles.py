"""What regions were measured to take in parts, on two undisturbed engines at the same time.

Must not know who measured.
"""

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from math import isfinite
from pathlib import Path
from typing import Any, TypeVar

from gearshift.errors import UsageError

SCHEMA_VERSION = 2
P = TypeVar("P")
SHIPPED = Path(__file__).with_name("profiles.json")
"""Recorded by `gearshift train split --record`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Parts:
    """One split of a region."""

    parts_s: tuple[float, float]
    """How long each engine is at work."""
    joined_s: float
    """What a call takes beyond the longer of the two: hand-over, cutting, joining."""
    link_share: float
    """Bytes that go to and from engines, as a share of what the region moves anyway."""
    held_share: float
    """Bytes held beyond the model's, as a share of the weights."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Profile:
    name: str
    backend: str
    kind: str
    dims: tuple[int, ...]
    num_rows: int
    flops: float
    moved_bytes: float
    item_bytes: int
    alone_s: float
    """Undivided, on one engine."""
    splits: Mapping[str, Parts]
    """By the action's name; those that are illegal are missing."""


def write_profiles(path: Path, profiles: Sequence[Any], about: Mapping[str, Any]) -> None:
    """Of whatever kind."""
    data = {
        "schema_version": SCHEMA_VERSION,
        "about": dict(about),
        "profiles": [asdict(profile) for profile in profiles],
    }
    path.write_text(json.dumps(data, indent=1) + "\n")


def read_profiles(path: Path) -> list[Profile]:
    """Raises UsageError, which names the file, if it holds something else."""
    return read_as(path, _profile)


def read_as(path: Path, make: Callable[[dict[str, Any]], P]) -> list[P]:
    """The same for profiles of whatever kind, each made of what was written of it."""
    try:
        data = json.loads(path.read_text())
        if data["schema_version"] != SCHEMA_VERSION:
            raise ValueError(f"schema version {data['schema_version']}")
        return [make(entry) for entry in data["profiles"]]
    except OSError as error:
        raise UsageError(f"cannot read {str(path)!r}: {error.strerror}") from None
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        raise UsageError(f"{str(path)!r} holds no profiles: {error}") from None


def about_profiles(path: Path) -> Any:
    """What is written beside profiles that can be read: the machine they were recorded on."""
    return json.loads(path.read_text()).get("about")


def _profile(entry: dict[str, Any]) -> Profile:
    splits = {
        name: Parts(**{**parts, "parts_s": tuple(parts["parts_s"])})
        for name, parts in entry.pop("splits").items()
    }
    found = Profile(splits=splits, dims=tuple(entry.pop("dims")), **entry)
    times = {"alone_s": found.alone_s, **{n: sum(p.parts_s) for n, p in splits.items()}}
    for name, number in times.items():
        if not (isfinite(number) and number > 0):
            raise ValueError(f"{name} of {found.name} is {number}, not a time above 0")
    numbers = [found.flops, found.moved_bytes]
    for parts in splits.values():
        numbers += [*parts.parts_s, parts.joined_s, parts.link_share, parts.held_share]
    if not all(map(isfinite, numbers)):
        raise ValueError(f"{found.name} holds what is no number")
    return found
