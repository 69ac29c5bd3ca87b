"""Benchmark results as tables for people.

Must not know how anything was measured.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from rich.console import Console
from rich.table import Table

from gearshift.bench.score import sound

SIDES = ("vs_eager", "vs_best_peer", "vs_best_static")


def show_overhead(data: Mapping[str, Any], out: Console) -> None:
    calls = _table("a call through the null backend", 1, "model", "regions", "weights", "us")
    hand = ("model", "rewrite", "gearshift ms", "by hand ms", "ratio")
    direct = _table("one plan per backend, against the backend by hand", 2, *hand)
    watch = _table("the same plan with the loop looking on", 1, "model", "ms", "without", "ratio")
    for case in data["cases"]:
        about, model = case["case"], case["case"]["model"]
        if "call_s" in case:
            numbers = (about["regions"], about["weights"], f"{case['call_s'] * 1e6:.0f}")
            calls.add_row(model, *map(str, numbers))
        elif "direct_s" in case:
            times = (_ms(case["gearshift_s"]), _ms(case["direct_s"]))
            direct.add_row(model, about["rewrite"], *times, f"{case['vs_direct']:.2f}")
        else:
            times = (_ms(case["watched_s"]), _ms(case["unwatched_s"]))
            watch.add_row(model, *times, f"{case['vs_unwatched']:.3f}")
    out.print(calls, direct, watch)


def _table(title: str, words: int, *columns: str) -> Table:
    """The first columns hold words, the others numbers."""
    table = Table(title=title)
    for index, column in enumerate(columns):
        table.add_column(
            column, no_wrap=index < words, justify="left" if index < words else "right"
        )
    return table


def show_runtime(data: Mapping[str, Any], out: Console) -> None:
    title = f"seed {data['seed']}: ms a call, and ratios; above 1 gearshift is better"
    times = ("gearshift", "eager", "best static", "oracle")
    ratios = (
        "vs eager",
        "vs best peer",
        "vs best static",
        "of oracle",
        "p95 vs eager",
        "CPU vs peer",
        "ready s",
    )
    table = _table(title, 3, "model", "trace", "start", *times, *ratios)
    for case in data["cases"]:
        about, peers = case["case"], case["peers_s"]
        took = (case["gearshift_s"], peers["eager"], case["best_static_s"], case["oracle_s"])
        names = ("vs_eager", "vs_best_peer", "vs_best_static", "of_oracle", "p95_vs_eager")
        cells = [f"{case[name]:.2f}" for name in (*names, "cpu_vs_best_peer")]
        ready_s = case["ready_s"][f"gearshift, {about['trace']}, {about['start']}"]
        cells.append(f"{ready_s:.1f}")
        table.add_row(about["model"], about["trace"], about["start"], *map(_ms, took), *cells)
    out.print(table)
    title = "after a change: when a plan within 10 % of the oracle's was in force, to stay"
    about_phase = ("model", "trace", "start", "neighbours", "oracle")
    changes = _table(title, len(about_phase), *about_phase, "calls", "seconds")
    for case in data["cases"]:
        about = case["case"]
        for phase in case["phases"]:
            others = ", ".join(phase["neighbours"]) or "none"
            row = (about["model"], about["trace"], about["start"], others, phase["oracle"])
            changes.add_row(*row, *_settled(phase["settled"]))
    out.print(changes)
    _summary(data["summary"], out)
    noise = f"{abs(data['noise'] - 1):.1%} over all, {data['noise_of_a_case'] - 1:.1%} typically"
    out.print(f"noise, the same contender twice: {noise}")


def show_split(data: Mapping[str, Any], out: Console) -> None:
    for case in (*data["cases"], *data["steps"]):
        if "failed" in case:
            out.print(f"{next(iter(case['case'].values()))}: {case['failed']}", markup=False)
    cases, steps = (sound(data[kind]) for kind in ("cases", "steps"))
    if cases:
        _show_divided(cases, data["summary"], out)
    if steps:
        _show_steps(steps, out)
    if data["models"]:
        _show_sides(data["models"], (*SIDES, "p95_vs_best_static", "noise"), out)
    if data["summary"]["models"]:
        _summary(data["summary"]["models"], out)
    out.print(f"a choice of the learned player: {data['decision_s'] * 1e6:.0f} us")


def _show_divided(
    cases: Sequence[Mapping[str, Any]], summary: Mapping[str, Any], out: Console
) -> None:
    players = list(cases[0]["players"])
    title = "ms a call, and shares of the oracle: the best of all ways to divide"
    ours = ("by itself", *players)
    table = _table(title, 3, "region", "engines", "oracle", "ms", "none both", *ours)
    for case in cases:
        about = (case["case"]["region"], case["case"]["engines"], case["oracle"])
        both_s = case["ways_s"].get("none both")
        times = (_ms(case["oracle_s"]), "-" if both_s is None else _ms(both_s))
        told = [case["by_itself"], *(case["players"][player] for player in players)]
        table.add_row(*about, *times, *(f"{found['of_oracle']:.2f}" for found in told))
    out.print(table)
    title = f"share of the oracle, geometric mean; the best fixed way: {summary['best_fixed']}"
    names = ("best fixed", "by itself", "by itself, least", *players)
    shares = _table(title, 1, "engines", *names)
    groups = {**summary["engines"], "regions the agent never saw": summary["unseen"]}
    for engines, found in groups.items():
        if found is not None:
            shares.add_row(engines, *(f"{found[name]:.2f}" for name in names))
    out.print(shares)


def _show_steps(steps: Sequence[Mapping[str, Any]], out: Console) -> None:
    title = "a neighbour comes and goes: calls until within 10 % of the oracle, and regret"
    table = _table(title, 2, "model", "", "comes", "goes", "stays", "regret")
    for step in steps:
        for way, found in step["steps"].items():
            calls = ["never" if count is None else str(count) for count in found["calls_to_follow"]]
            shares = (f"{min(found['stayed']):.0%}", f"{found['regret']:.1%}")
            table.add_row(step["case"]["model"], way, *calls, *shares)
    out.print(table)


def show_regions(data: Mapping[str, Any], out: Console) -> None:
    shown = {"cases": _show_cases, "shapes": _show_shapes, "builds": _show_builds}
    for kind, show in shown.items():
        for case in data[kind]:
            if "failed" in case:
                out.print(f"{_model(case)}: {case['failed']}", markup=False)
        sound = [case for case in data[kind] if "failed" not in case]
        if sound:
            show(sound, out)
    if data["summary"]:
        _summary(data["summary"], out)


def show_rnn(data: Mapping[str, Any], out: Console) -> None:
    _show_sides(data["cases"], (*SIDES, "vs_torch", "noise"), out)
    for what, seconds in data["switch_s"].items():
        out.print(f"a call under way goes on by other {what}: {seconds * 1e6:.0f} us", markup=False)
    if data["summary"]:
        _summary(data["summary"], out)


def _show_sides(cases: Sequence[Mapping[str, Any]], ratios: Sequence[str], out: Console) -> None:
    words = [name.replace("_", " ") for name in ratios]
    table = _table("ms a call", 4, "model", "trace", "best static", "plan", "gearshift", *words)
    for case in cases:
        if "failed" in case:
            out.print(f"{_model(case)}: {case['failed']}", markup=False)
            continue
        told = (_model(case), case["case"]["trace"], case["best_static"], case["plan"])
        table.add_row(*told, _ms(case["gearshift_s"]), *(_ratio(case[name]) for name in ratios))
        for name, why in case["peers_failed"].items():
            out.print(f"{_model(case)}: without {name}: {why}", markup=False)
    out.print(table)


def _model(case: Mapping[str, Any]) -> str:
    name: str = case["case"]["model"]
    return name.rpartition(":")[2]


def _ratio(value: float | None) -> str:
    return "-" if value is None else f"{value:.2f}"


def _show_cases(cases: Sequence[Mapping[str, Any]], out: Console) -> None:
    title = "ms a call in the end; and how fast all was after so many calls, compilation included"
    names = ("vs_eager", "vs_best_peer")
    later = [f"{name}_at_{n}" for n in cases[0]["until_s"] for name in names]
    words = [name.replace("_", " ") for name in (*names, "noise", *later)]
    table = _table(title, 2, "model", "best peer", "gearshift", "peer", *words)
    for case in cases:
        times = (_ms(case["gearshift_s"]), _ms(case["best_peer_s"]))
        cells = [_ratio(case[name]) for name in (*names, "noise", *later)]
        table.add_row(_model(case), case["best_peer"], *times, *cells)
    out.print(table)
    for case in cases:
        for told in case["formed"]:
            out.print(f"{_model(case)}: {told.strip()}", markup=False)
        if case["vs_unformed"] is not None:
            gain = f"{case['vs_unformed']:.2f} times as fast as without regions formed anew"
            out.print(f"{_model(case)}: {gain}", markup=False)
        for name, why in case["peers_failed"].items():
            out.print(f"{_model(case)}: without {name}: {why}", markup=False)


def _show_shapes(cases: Sequence[Mapping[str, Any]], out: Console) -> None:
    soon = ("calls until near, to stay", "near after 50 calls")
    ratios = ("first_call_vs_eager", "worst_call_vs_eager", "vs_best_peer")
    words = [name.replace("_", " ") for name in ratios]
    table = _table("inputs of another size", 1, "model", *soon, *words)
    for case in cases:
        calls, share = case["calls_until_near"], case["near_after_50"]
        told = ("never" if calls is None else str(calls), "-" if share is None else f"{share:.0%}")
        table.add_row(_model(case), *told, *(f"{case[name]:.2f}" for name in ratios))
    out.print(table)


def _show_builds(cases: Sequence[Mapping[str, Any]], out: Console) -> None:
    words = ("builds", "p95 over at rest", "mean over at rest", "noise of p95")
    table = _table("while plans are built on another core", 1, "model", *words)
    for case in cases:
        ratios = [f"{case[name]:.2f}" for name in ("p95_ratio", "mean_ratio", "noise")]
        table.add_row(_model(case), str(case["builds"]), *ratios)
    out.print(table)


def _summary(summary: Mapping[str, Any], out: Console) -> None:
    ratios = [ratio for ratio in next(iter(summary.values())) if ratio != "changes"]
    words = [ratio.replace("_", " ") for ratio in ratios]
    table = _table("whole models: geometric mean (minimum)", 1, "trace", *words)
    for group, found in summary.items():
        told = [found[ratio] for ratio in ratios]
        cells = [f"{r['geometric_mean']:.2f} ({r['minimum']:.2f})" for r in told]
        table.add_row(group, *cells)
    out.print(table)
    for group, found in summary.items():
        told = [
            f"{changes['followed_soon']} of {changes['number']} when somebody {what}"
            for what, changes in found.get("changes", {}).items()
            if changes["number"]
        ]
        if told:
            out.print(f"{group}, followed within 60 calls or a second: {', '.join(told)}")


def _settled(found: Mapping[str, float] | None) -> Sequence[str]:
    return ("never", "") if found is None else (f"{found['calls']}", f"{found['seconds']:.2f}")


def _ms(seconds: float) -> str:
    return f"{seconds * 1e3:.2f}"
