"""What a short run tells of a model's ops and regions, on real models."""

import re
from collections.abc import Iterator

import pytest
import torch
from torch import Tensor, nn

import gearshift
from gearshift.observe.hal import measure_roofline
from gearshift.profile import hot_ops, lines_of, profile_branches, profile_ops, roof_of
from gearshift.view.profiled import profile_page


class Uneven(nn.Module):
    """Much arithmetic on little data, then little on much."""

    def __init__(self) -> None:
        super().__init__()
        self.dense = nn.Linear(1024, 1024)
        self.light = nn.Sequential(nn.ReLU(), nn.Tanh())

    def forward(self, x: Tensor) -> Tensor:
        return self.light(self.dense(x)).t()


@pytest.fixture(scope="module")
def runtime() -> Iterator[gearshift.Runtime]:
    torch.manual_seed(0)
    with gearshift.adapt(Uneven().eval(), torch.randn(256, 1024), policy="keep") as made:
        yield made


@pytest.mark.capability("region.hooks")
def test_every_op_is_timed_and_what_it_moves_is_counted(runtime: gearshift.Runtime) -> None:
    found = profile_ops(runtime, seconds=0.1)
    graph = runtime.program.graph
    assert set(found) == set(graph.by_name)
    kinds = {graph.by_name[name].kind: reading for name, reading in found.items()}
    assert max(found.values(), key=lambda reading: reading.seconds) is kinds["linear"]
    rows = 256 * 1024 * 4
    assert kinds["linear"].transfer_bytes == 2 * rows
    assert kinds["linear"].moved_bytes == 2 * rows + 1024 * 1024 * 4 + 1024 * 4
    assert kinds["linear"].set_bytes == kinds["linear"].moved_bytes
    assert kinds["elementwise"].moved_bytes == kinds["elementwise"].transfer_bytes == 2 * rows
    assert kinds["reshape"].set_bytes <= kinds["reshape"].moved_bytes == 2 * rows


def test_what_is_read_out_of_order_is_told() -> None:
    class Turned(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            return x.t().exp()

    with gearshift.adapt(Turned().eval(), torch.randn(8, 6), policy="keep") as made:
        found = profile_ops(made, seconds=0.01)
        graph = made.program.graph
    orders = {graph.by_name[name].kind: reading.contiguous for name, reading in found.items()}
    assert orders == {"reshape": True, "elementwise": False}


@pytest.mark.capability("region.bound")
def test_regions_are_bound_by_arithmetic_or_by_memory(runtime: gearshift.Runtime) -> None:
    roofline = measure_roofline()
    readings = profile_ops(runtime, seconds=0.1)
    spots = profile_branches(runtime, readings, roofline, depth=1)
    bounds = {spot.branch.name: spot.bound for spot in spots if spot.level == 1}
    assert bounds["dense"] == "compute"
    assert bounds["light"] == "memory"
    whole = next(spot for spot in spots if spot.level == 0)
    assert whole.work.seconds == pytest.approx(sum(r.seconds for r in readings.values()))
    assert all(spot.of_roof is None or spot.of_roof < 3 for spot in spots)
    lines = lines_of(spots, [])
    assert lines[0].share == pytest.approx(1.0)
    assert lines[0].intensity == pytest.approx(whole.work.flops / whole.work.moved_bytes)


def test_a_page_of_it_has_the_roof_and_every_region(runtime: gearshift.Runtime) -> None:
    readings = profile_ops(runtime, seconds=0.02)
    roofline = measure_roofline()
    lines = lines_of(profile_branches(runtime, readings, roofline, depth=1), [])
    hot = hot_ops(runtime.program.graph, readings)
    page = profile_page("<b>mine</b>", roof_of(roofline), lines, hot, {"cpu": "this"})
    assert "&lt;b&gt;mine" in page
    assert "<b>mine" not in page
    assert len(re.findall("<tr><td style", page)) == len(lines)
    assert "dense" in page
