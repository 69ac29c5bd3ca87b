"""Draws the results of `gearshift bench runtime`: `chart.py OUT.svg RESULT.json ...`.

For each trace the speed of everybody relative to eager: geometric means over models and seeds, of
cases whose oracle is known.
Prints the README's table: the same of each ratio, and the least.
"""

import json
import statistics
import sys
from pathlib import Path
from typing import Any

import matplotlib

matplotlib.use("svg")
import matplotlib.pyplot as plt

BARS = {
    "torch.compile": "#c9c9c9",
    "onnxruntime": "#a8b8c8",
    "openvino": "#88a0b8",
    "best static": "#587898",
    "gearshift": "#d05a2a",
    "oracle": "#202020",
}
TRACES = {"quiet": "quiet", "neighbour": "one neighbour", "changing": "neighbours come and go"}


RATIOS = {
    "vs_eager": "eager",
    "vs_best_peer": "the best peer",
    "vs_best_static": "the best static",
    "of_oracle": "the oracle",
    "p95_vs_eager": "eager's p95",
    "p95_vs_best_static": "the best static's p95",
    "cpu_vs_best_peer": "the best peer's CPU time",
}


def main(out: str, *files: str) -> None:
    cases = [c for f in files for c in json.loads(Path(f).read_text())["cases"]]
    tell(cases)
    known = [case for case in cases if case["oracle_s"] is not None]
    warm = [case for case in known if case["case"]["start"] == "warm"]
    figure, axes = plt.subplots(figsize=(8, 3.4))
    width = 0.8 / len(BARS)
    for place, (name, colour) in enumerate(BARS.items()):
        heights = [speed(warm, trace, name) for trace in TRACES]
        where = [index + (place - (len(BARS) - 1) / 2) * width for index in range(len(TRACES))]
        bars = axes.bar(where, heights, width * 0.92, label=name, color=colour)
        axes.bar_label(bars, fmt="%.1f", fontsize=7)
    axes.axhline(1.0, color="black", linewidth=0.8, linestyle=":")
    axes.set_xticks(range(len(TRACES)), TRACES.values())
    axes.set_ylabel("speed relative to eager")
    axes.spines[["top", "right"]].set_visible(False)
    axes.legend(
        ncols=len(BARS), fontsize=7, frameon=False, loc="upper center", bbox_to_anchor=(0.5, 1.12)
    )
    figure.tight_layout()
    figure.savefig(out, metadata={"Date": None})


def tell(cases: list[dict[str, Any]]) -> None:
    print("| |", " | ".join(RATIOS.values()), "| followed soon |")
    print("| --- |", " | ".join("---" for _ in RATIOS), "| --- |")
    for trace, name in TRACES.items():
        for start in ("warm", "cold"):
            about = {"trace": trace, "start": start}
            mine = [case for case in cases if about.items() <= case["case"].items()]
            found = [[c[ratio] for c in mine if c[ratio] is not None] for ratio in RATIOS]
            told = [f"{statistics.geometric_mean(f):.2f} ({min(f):.2f})" for f in found]
            changes = [phase for case in mine for phase in case["phases"][1:]]
            soon = [phase["soon"] for phase in changes if phase["soon"] is not None]
            last = f"{sum(soon)} of {len(soon)}" if soon else ""
            print(f"| {name}, {start} |", " | ".join(told), "|", last, "|")


def speed(cases: list[dict[str, Any]], trace: str, name: str) -> float:
    return statistics.geometric_mean(
        case["peers_s"]["eager"] / seconds(case, name)
        for case in cases
        if case["case"]["trace"] == trace
    )


def seconds(case: dict[str, Any], name: str) -> float:
    known = {
        "best static": case["best_static_s"],
        "gearshift": case["gearshift_s"],
        "oracle": case["oracle_s"],
    }
    return float(known.get(name) or case["peers_s"][name])


if __name__ == "__main__":
    main(*sys.argv[1:])
