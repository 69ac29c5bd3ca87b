"""A runtime's story: calls, decisions, regions on their engines, and what could be measured."""

import json
import re
from html import escape
from itertools import pairwise
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
from torch import nn

import gearshift
from gearshift.decide.messages import Answer
from gearshift.errors import UsageError
from gearshift.ir.snapshot import Situation, Snapshot
from gearshift.plan import Plan, Region, Rewrite
from gearshift.plan.plan import whole
from gearshift.tell import _crowds, deciding, story_of
from gearshift.view.story import Story
from gearshift.view.trace import trace


class Branches(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.left = nn.Sequential(*[nn.Linear(512, 512) for _ in range(6)])
        self.right = nn.Sequential(*[nn.Linear(512, 512) for _ in range(6)])

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.left(x) + self.right(x)


def on_two_engines(runtime: gearshift.Runtime) -> Plan:
    graph = runtime.program.graph
    rewrite = Rewrite(backend="onnxruntime", threads=1)
    sides = {
        side: [op.name for op in graph.ops if op.scope.startswith(side)]
        for side in ("left", "right")
    }
    rest = [op.name for op in graph.ops if not op.scope.startswith(("left", "right"))]
    return Plan(
        regions=(
            Region(ops=tuple(sides["left"]), engine="cpu:0", rewrite=rewrite),
            Region(ops=tuple(sides["right"]), engine="cpu:1", rewrite=rewrite),
            Region(ops=tuple(rest)),
        )
    )


@pytest.mark.capability("core.trace")
def test_a_trace_shows_independent_regions_overlap_on_their_engines() -> None:
    model, x = Branches().eval(), torch.randn(64, 512)
    with gearshift.adapt(model, x) as runtime:
        runtime.swap(on_two_engines(runtime))
        for _ in range(50):
            runtime(x)
        made = json.loads(json.dumps(trace(story_of(runtime))))
    rows = {e["tid"]: e["args"]["name"] for e in made["traceEvents"] if e["name"] == "thread_name"}
    spans: dict[str, list[tuple[float, float]]] = {}
    for event in made["traceEvents"]:
        if event["ph"] == "X":
            spans.setdefault(rows[event["tid"]], []).append(
                (event["ts"], event["ts"] + event["dur"])
            )
    pairs = zip(spans["cpu:0"], spans["cpu:1"], strict=True)
    assert len(spans["cpu:0"]) == 50
    assert any(max(a[0], b[0]) < min(a[1], b[1]) for a, b in pairs), "both at work at once"
    assert all(a[1] <= b[0] for a, b in pairwise(spans["cpu:0"]))


def test_the_regions_of_the_plan_know_who_reads_them_and_what_they_took() -> None:
    model, x = Branches().eval(), torch.randn(8, 512)
    with gearshift.adapt(model, x) as runtime:
        runtime.swap(on_two_engines(runtime))
        for _ in range(5):
            runtime(x)
        boxes = story_of(runtime).boxes
    on = {box.engine: box for box in boxes}
    left, right, add = on["cpu:0"], on["cpu:1"], on["caller"]
    assert left.title.startswith("left")
    assert left.feeds == right.feeds == (add.name,)
    assert all(box.mean_s is not None and box.mean_s > 0 for box in boxes)


def test_a_report_can_be_written_at_any_time(tmp_path: Path) -> None:
    model, x = Branches().eval(), torch.randn(8, 512)
    with gearshift.adapt(model, x) as runtime:
        runtime.report(tmp_path / "before any call.html")
        runtime(x)
        runtime.report(tmp_path / "after.html", model="branches")
        with pytest.raises(UsageError, match="cannot write"):
            runtime.report(tmp_path / "no" / "such.html")
    assert "No calls yet" in (tmp_path / "before any call.html").read_text()
    text = (tmp_path / "after.html").read_text()
    assert "<h1>branches</h1>" in text
    assert torch.__version__.split("+")[0] in text


def test_what_the_loop_saw_is_in_the_story() -> None:
    model, x = Branches().eval(), torch.randn(8, 512)
    with gearshift.adapt(model, x, policy="bandit") as runtime:
        while len(runtime._loop.history) < 5:  # type: ignore[union-attr]
            runtime(x)
        story = story_of(runtime)
    assert story.calls
    assert all(call.call_s > 0 for call in story.calls)
    assert {reading.source for reading in story.readings} >= {"measured", "unavailable"}
    assert any(series.points for series in story.counters)
    assert any(cost.name == "cost of monitoring" for cost in story.costs)


class InParts(nn.Module):
    """Python between two submodules that cannot be captured."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Sequential(*[nn.Linear(256, 256) for _ in range(4)])
        self.second = nn.Sequential(*[nn.Linear(256, 256) for _ in range(4)])

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = self.first(x)
        return self.second(y) if float(y.sum()) > -1e9 else y


def test_the_model_itself_is_one_region_of_a_call() -> None:
    model, x = Branches().eval(), torch.randn(8, 512)
    with gearshift.adapt(model, x) as runtime:
        runtime(x)
        (call,) = story_of(runtime).spans
    assert [(span.region, span.engine, span.backend) for span in call] == [
        ("the model", "caller", "eager")
    ]
    assert call[0].end_s > call[0].begin_s


def five_calls(model: nn.Module) -> Story:
    """What is told of them, all parts on ONNX Runtime."""
    x = torch.randn(8, 256)
    with gearshift.adapt(model.eval(), x) as runtime:
        plan = whole(runtime.program.graph, rewrite=Rewrite(backend="onnxruntime", threads=1))
        runtime.swap(plan)
        for _ in range(5):
            runtime(x)
        return story_of(runtime)


@pytest.mark.filterwarnings("ignore")
def test_a_model_captured_in_parts_tells_when_each_ran() -> None:
    story = five_calls(InParts())
    calls = [spans for spans in story.spans if len(spans) == 2]
    assert len(calls) == 5
    assert all(first.end_s <= second.begin_s for first, second in calls)
    assert len(story.one_call) == 2
    assert all(box.mean_s is not None for box in story.boxes)


def test_one_call_is_of_the_plan_in_force() -> None:
    model, x = Branches().eval(), torch.randn(8, 512)
    with gearshift.adapt(model, x) as runtime:
        runtime.swap(on_two_engines(runtime))
        runtime(x)
        runtime.swap(whole(runtime.program.graph, rewrite=Rewrite(backend="onnxruntime")))
        runtime(x)
        story = story_of(runtime)
    assert [span.backend for span in story.one_call] == ["onnxruntime"]
    assert any(len(spans) == 3 for spans in story.spans), "calls before a swap are kept, too"


def test_neighbours_are_there_until_they_are_seen_to_be_gone() -> None:
    seen = [
        Snapshot(
            at_s=at_s, plan="p", trial=None, situation=Situation(signature="x", neighbours=count)
        )
        for at_s, count in ((1.0, 0), (2.0, 1), (3.0, 0), (4.0, 0))
    ]
    told = [(c.begin_s, c.end_s, c.neighbours) for c in _crowds(seen, 0.0)]
    assert told == [(1.0, 2.0, 0), (2.0, 3.0, 1), (3.0, 4.0, 0)]
    assert _crowds([], 0.0) == []


class Again(nn.Module):
    """A cell called over and over, with Python in between."""

    def __init__(self) -> None:
        super().__init__()
        self.cell = nn.Sequential(*[nn.Linear(256, 256) for _ in range(4)])

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for _ in range(5):
            x = self.cell(x)
            if float(x.sum()) > 1e9:
                break
        return x


@pytest.mark.filterwarnings("ignore")
def test_a_part_that_runs_several_times_in_a_call_is_timed_each_time() -> None:
    story = five_calls(Again())
    assert [len(spans) for spans in story.spans][-5:] == [5] * 5
    (box,) = story.boxes
    assert box.mean_s is not None
    assert story.call_s is not None
    assert 0 < story.between_s < story.call_s
    assert box.mean_s + story.between_s == pytest.approx(story.call_s, rel=0.01)


@pytest.mark.capability("core.report")
def test_a_report_tells_of_a_real_swap(tmp_path: Path) -> None:
    model, x = Branches().eval(), torch.randn(8, 512)
    with gearshift.adapt(model, x) as runtime:
        runtime(x)
        runtime.swap(on_two_engines(runtime), "to see it in the report")
        for _ in range(5):
            runtime(x)
        runtime.report(tmp_path / "report.html")
        summary = runtime.plan.summary
    text = (tmp_path / "report.html").read_text()
    assert "to see it in the report" in text
    assert escape(summary) in text
    assert "<b>1</b><span>swaps</span>" in text
    for engine in ("cpu:0", "cpu:1"):
        assert f">{engine}</text>" in text, "a lane in the call that is drawn"
    assert re.search(r"left.*?</td><td>onnxruntime x1</td><td class=number>\d+\.\d+ ms", text)


@pytest.mark.parametrize(
    ("decides", "told"), [("rules", "rules, in place of dqn"), ("dqn", "dqn"), ("", "dqn")]
)
def test_who_decides_in_place_of_whom_is_told(decides: str, told: str) -> None:
    runtime = SimpleNamespace(policy="dqn", _loop=SimpleNamespace(answer=Answer(policy=decides)))
    assert deciding(runtime) == told
