"""The library of rewrites: each entry legal where it may be, refused with a reason elsewhere."""

import pytest
import torch
from torch import nn

import gearshift
from gearshift.act.backends import BACKENDS
from gearshift.errors import PlanError
from gearshift.plan import Plan, Region, Rewrite, legal
from gearshift.plan.cut import formed
from gearshift.plan.library import BY_NAME, LIBRARY, Build, Tag, entry_of
from gearshift.plan.rewrite import BUFFERS, PREFETCH, TILES
from gearshift.plan.text import dumps, loads


class Net(nn.Module):
    """Convolutions, then products on many rows."""

    def __init__(self) -> None:
        super().__init__()
        self.images = nn.Sequential(nn.Conv2d(3, 8, 3), nn.ReLU(), nn.Conv2d(8, 8, 3), nn.ReLU())
        self.rows = nn.Sequential(nn.Linear(288, 512), nn.GELU(), nn.Linear(512, 64))
        self.last = nn.Linear(64, 10)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.last(self.rows(self.images(x).flatten(1)))


@pytest.fixture(scope="module")
def runtime() -> gearshift.Runtime:
    torch.manual_seed(0)
    return gearshift.adapt(Net().eval(), torch.randn(512, 3, 10, 10), policy="keep")


def by(runtime: gearshift.Runtime, module: str, rewrite: Rewrite) -> Plan:
    """One module's regions by this rewrite, the others by ONNX Runtime."""
    graph = runtime.program.graph
    plain = Region(ops=(), rewrite=Rewrite(backend="onnxruntime", threads=1))
    plan = formed(graph, granularity=1, like=plain)
    regions = [
        Region(ops=r.ops, rewrite=rewrite) if graph.by_name[r.name].scope.startswith(module) else r
        for r in plan.regions
    ]
    return Plan(regions=tuple(regions))


QUICK = [entry for entry in LIBRARY if entry.build is not Build.SLOW]


@pytest.mark.capability("region.library")
@pytest.mark.parametrize("entry", QUICK, ids=lambda entry: entry.name)
def test_every_entry_gives_the_models_outputs(entry, runtime: gearshift.Runtime) -> None:  # type: ignore[no-untyped-def]
    plan = by(runtime, "rows", entry.rewrite(1))
    runtime.swap(plan)
    x = torch.randn(512, 3, 10, 10)
    with torch.no_grad():
        for _ in range(3):
            torch.testing.assert_close(runtime(x), runtime.program.eager(x), atol=1e-4, rtol=1e-4)
        other = torch.randn(16, 3, 10, 10)
        torch.testing.assert_close(
            runtime(other), runtime.program.eager(other), atol=1e-4, rtol=1e-4
        )
    assert entry.option in {region.rewrite.option for region in runtime.plan.regions}


@pytest.mark.soak
@pytest.mark.parametrize("name", ["fusion", "unrolled"])
def test_slow_builds_give_the_models_outputs(name: str, runtime: gearshift.Runtime) -> None:
    runtime.swap(by(runtime, "rows", BY_NAME[name].rewrite(None)))
    x = torch.randn(512, 3, 10, 10)
    with torch.no_grad():
        torch.testing.assert_close(runtime(x), runtime.program.eager(x), atol=1e-4, rtol=1e-4)


def test_channels_last_comes_out_as_it_went_in(runtime: gearshift.Runtime) -> None:
    runtime.swap(by(runtime, "images", BY_NAME["channels last"].rewrite(None)))
    x = torch.randn(512, 3, 10, 10)
    with torch.no_grad():
        torch.testing.assert_close(runtime(x), runtime.program.eager(x), atol=1e-4, rtol=1e-4)
    assert runtime.memory.region_bytes > 0


def test_outputs_that_callers_keep_never_change_though_buffers_are_used_again(
    runtime: gearshift.Runtime,
) -> None:
    runtime.swap(by(runtime, "rows", BY_NAME["buffers"].rewrite(1)))
    with torch.no_grad():
        first = runtime(torch.randn(512, 3, 10, 10))
        kept = first.clone()
        for _ in range(3):
            runtime(torch.randn(512, 3, 10, 10))
    assert torch.equal(first, kept)


@pytest.mark.parametrize(
    ("module", "option", "backend", "why"),
    [
        ("last", BUFFERS, "onnxruntime", "callers may keep"),
        ("images", PREFETCH, "eager", "nothing runs before"),
        ("last", TILES, "eager", "fit into the cache"),
        ("rows", "channels-last", "onnxruntime", "no setting 'channels-last'"),
        ("rows", "magic", "eager", "no setting 'magic'"),
    ],
)
def test_an_option_that_does_not_fit_is_refused_with_the_reason(
    runtime: gearshift.Runtime, module: str, option: str, backend: str, why: str
) -> None:
    plan = by(runtime, module, Rewrite(backend=backend, option=option))
    with pytest.raises(PlanError, match=why):
        legal.check(plan, runtime.space)


def test_entries_are_tagged_named_once_and_found_again() -> None:
    assert {entry.tag for entry in LIBRARY} == set(Tag)
    assert len(BY_NAME) == len(LIBRARY)
    for entry in LIBRARY:
        assert entry.backend in BACKENDS
        assert not entry.option or entry.option in BACKENDS[entry.backend].settings
        assert entry_of(entry.rewrite(2)) is entry
    assert entry_of(Rewrite(backend="mine")) is None


def test_an_option_is_part_of_a_plan_as_text(runtime: gearshift.Runtime) -> None:
    plan = by(runtime, "rows", BY_NAME["tiles"].rewrite(None))
    assert loads(dumps(plan), runtime.program.graph) == plan
    with pytest.raises(PlanError, match=r"rewrite\.option cannot be 3"):
        loads(
            '{"schema_version": 1, "regions": [{"ops": "*", "rewrite": {"option": 3}}]}',
            runtime.program.graph,
        )
