"""Which entries of the library win, by what was recorded.

Must not know who measured.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from math import exp, log
from statistics import median, quantiles

from gearshift.plan.library import BY_NAME, LIBRARY
from gearshift.sim.rewrite_profiles import PLAIN, RegionProfile

TWIN = "prefetch"
"""Measured by itself, it runs what the plain entry runs: how far they differ is noise."""
FEW = 2


@dataclass(frozen=True, slots=True, kw_only=True)
class Won:
    tag: str
    measured_on: int
    """Regions."""
    best_on: int
    """Of those, where it beats the best by every other backend by more than noise;"""
    most: float
    """by how much at most, 0 if nowhere,"""
    where: str
    """and on what."""
    build_s: float
    """What it takes to build, median."""


def noise_of(profiles: Sequence[RegionProfile]) -> float:
    """Nine in ten pairs of twins differ by less than this factor; 1 if there are none."""
    pairs = [(p.seconds[PLAIN], p.seconds[TWIN]) for p in profiles if TWIN in p.seconds]
    apart = [abs(log(one / other)) for one, other in pairs]
    return exp(quantiles(apart, n=10)[-1]) if len(apart) >= FEW else 1.0


def won(profiles: Sequence[RegionProfile]) -> dict[str, Won]:
    """By entry, most wins first; those that never win, too. Left out is who was never measured."""
    noise = noise_of(profiles)
    found = {entry.name: _won(entry.name, profiles, noise) for entry in LIBRARY}
    known = {name: told for name, told in found.items() if told is not None}
    return dict(sorted(known.items(), key=lambda entry: -entry[1].best_on))


def _won(name: str, profiles: Sequence[RegionProfile], noise: float) -> Won | None:
    mine = [profile for profile in profiles if name in profile.seconds]
    if not mine:
        return None
    ahead = {f"{p.model}: {p.name}": _ahead(name, p) for p in mine}
    wins = {where: by for where, by in ahead.items() if by > noise}
    where = max(wins, key=lambda one: wins[one], default="")
    return Won(
        tag=str(BY_NAME[name].tag),
        measured_on=len(mine),
        best_on=len(wins),
        most=wins.get(where, 0.0),
        where=where,
        build_s=median(profile.build_s[name] for profile in mine),
    )


def _ahead(name: str, profile: RegionProfile) -> float:
    """How many times as fast as the best by another backend; 0 if its own backend has a faster
    entry, or no other was measured."""
    backend, seconds = BY_NAME[name].backend, profile.seconds
    own = [s for other, s in seconds.items() if BY_NAME[other].backend == backend]
    others = [s for other, s in seconds.items() if BY_NAME[other].backend != backend]
    if min(own) < seconds[name] or not others:
        return 0.0
    return min(others) / seconds[name]
