"""What `gearshift bench rnn` makes of its cases; ratios above 1: Gearshift is better.

Must not know how anything was measured.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from gearshift.bench.score import mean_and_least, noise_over, sound

RATIOS = ("vs_eager", "vs_best_peer", "vs_best_static", "vs_torch")
LONG, DEEP = 100, 2


def summary_of(cases: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Geometric mean and least of each ratio, for the groups that are looked at."""
    measured = sound(cases)
    groups = {name: [case for case in measured if chosen(case)] for name, chosen in GROUPS.items()}
    return {
        **noise_over(cases),
        "failed": len(cases) - len(measured),
        "summary": {name: _told(some) for name, some in groups.items() if some},
    }


def _told(cases: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    return {name: mean_and_least(cases, name) for name in RATIOS}


def _is(trace: str, *lengths: str) -> Callable[[Mapping[str, Any]], bool]:
    def chosen(case: Mapping[str, Any]) -> bool:
        about = case["case"]
        return about["trace"] == trace and (not lengths or about["lengths"] in lengths)

    return chosen


def _deep(case: Mapping[str, Any]) -> bool:
    about = case["case"]
    deep = about["layers"] >= DEEP and about["steps"] >= LONG
    return deep and _is("quiet", "uniform")(case)


GROUPS = {
    "quiet": _is("quiet"),
    "quiet, two layers and 100 steps or more, uniform": _deep,
    "quiet, ragged": _is("quiet", "ragged", "skewed"),
    "quiet, streaming": _is("quiet", "streaming"),
    "neighbour": _is("neighbour"),
}
