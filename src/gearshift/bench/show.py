"""Benchmark results as tables for people.

Must not know how anything was measured.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from rich.console import Console
from rich.table import Table


def show_overhead(data: Mapping[str, Any], out: Console) -> None:
    calls = Table(title="a call through the null backend")
    for column in ("model", "regions", "weights", "us"):
        calls.add_column(column, justify="left" if column == "model" else "right")
    direct = Table(title="one plan per backend, against the backend by hand")
    for column in ("model", "rewrite", "gearshift ms", "by hand ms", "ratio"):
        direct.add_column(column, justify="right" if column[-1] in "so" else "left")
    for case in data["cases"]:
        about = case["case"]
        if "watched_s" in case:
            continue
        if "call_s" in case:
            numbers = (str(about["regions"]), str(about["weights"]), f"{case['call_s'] * 1e6:.0f}")
            calls.add_row(about["model"], *numbers)
        else:
            times = (_ms(case["gearshift_s"]), _ms(case["direct_s"]))
            direct.add_row(about["model"], about["rewrite"], *times, f"{case['vs_direct']:.2f}")
    watch = Table(title="monitoring: the same plan with the loop looking on, and without")
    for column in ("model", "with ms", "without ms", "ratio"):
        watch.add_column(column, justify="left" if column == "model" else "right")
    for case in data["cases"]:
        if "watched_s" in case:
            times = (_ms(case["watched_s"]), _ms(case["unwatched_s"]))
            watch.add_row(case["case"]["model"], *times, f"{case['vs_unwatched']:.3f}")
    out.print(calls, direct, watch)


def show_runtime(data: Mapping[str, Any], out: Console) -> None:
    table = Table(title=f"seed {data['seed']}: ms a call, and ratios; above 1 gearshift is better")
    for column in ("model", "trace", "start"):
        table.add_column(column, no_wrap=True)
    for column in ("gearshift", "eager", "best static", "oracle", "vs eager", "vs best peer"):
        table.add_column(column, justify="right")
    for column in ("vs best static", "of oracle", "p95 vs eager", "CPU vs peer"):
        table.add_column(column, justify="right")
    for case in data["cases"]:
        about, peers = case["case"], case["peers_s"]
        times = (case["gearshift_s"], peers["eager"], case["best_static_s"], case["oracle_s"])
        names = ("vs_eager", "vs_best_peer", "vs_best_static", "of_oracle", "p95_vs_eager")
        ratios = [f"{case[name]:.2f}" for name in (*names, "cpu_vs_best_peer")]
        table.add_row(about["model"], about["trace"], about["start"], *map(_ms, times), *ratios)
    out.print(table)
    changes = Table(title="after a change: when a plan within 10 % of the oracle's was in force")
    for column in ("model", "trace", "start", "neighbours", "oracle", "calls", "seconds"):
        changes.add_column(column, justify="right" if column in ("calls", "seconds") else "left")
    for case in data["cases"]:
        about = case["case"]
        for phase in case["phases"]:
            others = ", ".join(phase["neighbours"]) or "none"
            row = (about["model"], about["trace"], about["start"], others, phase["oracle"])
            changes.add_row(*row, *_settled(phase["settled"]))
    out.print(changes)
    _summary(data["summary"], out)


def _summary(summary: Mapping[str, Any], out: Console) -> None:
    table = Table(title="geometric mean (minimum)")
    table.add_column("trace, start", no_wrap=True)
    for ratio in next(iter(summary.values())):
        table.add_column(ratio.replace("_", " "), justify="right")
    for group, ratios in summary.items():
        cells = [f"{r['geometric_mean']:.2f} ({r['minimum']:.2f})" for r in ratios.values()]
        table.add_row(group, *cells)
    out.print(table)


def _settled(found: Mapping[str, float] | None) -> Sequence[str]:
    return ("never", "") if found is None else (f"{found['calls']}", f"{found['seconds']:.2f}")


def _ms(seconds: float) -> str:
    return f"{seconds * 1e3:.2f}"
