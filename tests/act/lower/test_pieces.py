"""Regions divided over height, columns and depth: legal ones give the model's answers, others are
refused with the reason."""

from collections.abc import Callable, Sequence
from statistics import median

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as f

import gearshift
from gearshift.act.engines.protocol import Stretch
from gearshift.act.verify import error_between
from gearshift.errors import PlanError
from gearshift.plan import Rewrite, Split
from gearshift.plan.plan import whole
from tests.act.lower.at_work import at_work
from tests.act.lower.test_divided import BACKENDS, TEAM

IMAGE, SIGNAL, ROWS, STEPS = (1, 6, 23, 17), (2, 6, 31), (3, 12), (2, 5, 12)
UNEQUAL = (3, 1)


class Residual(nn.Module):
    """Two paths of different reach meet."""

    def __init__(self) -> None:
        super().__init__()
        self.near, self.far = nn.Conv2d(6, 6, 1), nn.Conv2d(6, 6, 5, padding=2)
        self.norm = nn.BatchNorm2d(6)

    def forward(self, x: Tensor) -> Tensor:
        return f.relu(self.near(x) + self.norm(self.far(f.relu(x))))


class Sliced(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return torch.cat([x[:, :4] * 2, x[:, 1:].sigmoid()], 1)


class Two(nn.Module):
    """Results of different heights."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Conv2d(6, 4, 3, padding=1), nn.Conv2d(4, 4, 3, stride=2)

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        high = self.first(x).relu()
        return high, self.second(high)


class Excited(nn.Module):
    """Every channel is weighed by something of the whole image."""

    def __init__(self) -> None:
        super().__init__()
        self.weigh = nn.Conv2d(6, 6, 1)

    def forward(self, x: Tensor) -> Tensor:
        return x * self.weigh(x.mean((2, 3), keepdim=True)).sigmoid()


class Marked(nn.Module):
    """A constant image beside the one that is given."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("mark", torch.randn(1, 2, *IMAGE[2:]))

    def forward(self, x: Tensor) -> Tensor:
        return torch.cat([x, self.mark], 1)


class Weighed(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.randn(12))

    def forward(self, x: Tensor) -> Tensor:
        return x @ self.weight


class Product(nn.Module):
    """Of two computed values."""

    def forward(self, both: Tensor) -> Tensor:
        return both[0].sigmoid() @ both[1]


class Given(nn.Module):
    """Of two values that are given."""

    def forward(self, left: Tensor, right: Tensor) -> Tensor:
        return left.relu() @ right


def seq(*layers: nn.Module) -> nn.Module:
    return nn.Sequential(*layers)


SPATIAL: dict[str, tuple[Callable[[], nn.Module], tuple[int, ...]]] = {
    "one convolution": (lambda: nn.Conv2d(6, 4, 3, padding=1), IMAGE),
    "stride": (lambda: nn.Conv2d(6, 4, 3, stride=2, padding=1), IMAGE),
    "long stride": (lambda: nn.Conv2d(6, 4, 2, stride=3), IMAGE),
    "dilation": (lambda: nn.Conv2d(6, 4, 3, padding=2, dilation=2), IMAGE),
    "groups": (lambda: nn.Conv2d(6, 6, 3, padding=1, groups=3), IMAGE),
    "uneven padding": (lambda: nn.Conv2d(6, 4, (5, 3), padding=(2, 0)), IMAGE),
    "chain": (
        lambda: seq(
            nn.Conv2d(6, 8, 3, padding=1), nn.BatchNorm2d(8), nn.ReLU(), nn.MaxPool2d(3, 2, 1)
        ),
        IMAGE,
    ),
    "deep": (lambda: seq(*(nn.Conv2d(6, 6, 3, padding=1) for _ in range(4))), IMAGE),
    "average": (lambda: nn.AvgPool2d(2), IMAGE),
    "residual": (Residual, IMAGE),
    "signal": (lambda: seq(nn.Conv1d(6, 4, 5, padding=2), nn.GELU()), SIGNAL),
    "slices": (Sliced, IMAGE),
    "two results": (Two, IMAGE),
}
COLUMNS: dict[str, tuple[Callable[[], nn.Module], tuple[int, ...]]] = {
    "linear": (lambda: nn.Linear(12, 10), ROWS),
    "no bias": (lambda: nn.Linear(12, 10, bias=False), ROWS),
    "three dimensions": (lambda: seq(nn.Linear(12, 10), nn.GELU()), STEPS),
    "convolution": (lambda: seq(nn.Conv2d(6, 8, 3), nn.BatchNorm2d(8), nn.ReLU()), IMAGE),
    "signal": (lambda: nn.Conv1d(6, 8, 3), SIGNAL),
    "depthwise": (
        lambda: seq(nn.Conv2d(6, 8, 1), nn.ReLU6(), nn.Conv2d(8, 8, 3, padding=1, groups=8)),
        IMAGE,
    ),
    "pool": (lambda: seq(nn.Conv2d(6, 8, 3), nn.MaxPool2d(2)), IMAGE),
    "feed forward": (lambda: seq(nn.Linear(12, 24), nn.ReLU(), nn.Linear(24, 12)), ROWS),
    "matmul": (Product, (2, 9, 9)),
    "bmm": (Product, (2, 3, 9, 9)),
}
DEPTH: dict[str, tuple[Callable[[], nn.Module], tuple[int, ...]]] = {
    "linear": (lambda: nn.Linear(12, 10), ROWS),
    "three dimensions": (lambda: nn.Linear(12, 10), STEPS),
    "convolution": (lambda: nn.Conv2d(6, 8, 3, padding=1), IMAGE),
    "activated": (lambda: seq(nn.ReLU(), nn.Linear(12, 10)), ROWS),
    "signal": (lambda: nn.Conv1d(6, 8, 3), SIGNAL),
}
REFUSED = [
    ("spatial", lambda: nn.Linear(12, 10), ROWS, "no image"),
    ("spatial", lambda: seq(nn.Conv2d(6, 6, 1), nn.Softmax(2)), IMAGE, "over the height"),
    ("spatial", lambda: nn.Upsample(scale_factor=2), IMAGE, "not known to keep"),
    ("spatial", Excited, IMAGE, "no part has all of"),
    ("spatial", Marked, IMAGE, "an image that is a constant"),
    ("columns", Weighed, (64, 12), "a vector has no columns"),
    ("columns", lambda: nn.ReLU(), ROWS, "no product"),
    ("columns", lambda: seq(nn.Linear(12, 64), nn.Softmax(-1)), ROWS, "Softmax"),
    ("columns", lambda: seq(nn.Linear(12, 64), nn.LayerNorm(64)), ROWS, "LayerNorm"),
    ("depth", lambda: seq(nn.Linear(12, 10), nn.ReLU()), ROWS, "whole sum"),
    ("depth", lambda: nn.Softmax(-1), ROWS, "Softmax"),
]


def compare(
    make: Callable[[], nn.Module],
    shape: tuple[int, ...],
    split: Split,
    by: str,
    told: Sequence[float] | None = None,
) -> None:
    """`told` are the shares that engines are said to do."""
    torch.manual_seed(0)
    model, x = make().eval(), torch.randn(shape)
    with gearshift.adapt(model, x, policy="keep") as runtime, torch.no_grad():
        rewrite = Rewrite(backend=by, threads=1)
        graph = runtime.program.graph
        runtime.swap(whole(graph, engine=TEAM, rewrite=rewrite, split=split))
        for _ in range(3):
            x = torch.randn(shape)
            want, have = model(x), runtime(x)
            pairs = zip(want, have, strict=True) if isinstance(want, tuple) else [(want, have)]
            for one, other in pairs:
                assert error_between(one, other) < 1e-5
        assert runtime.faults == {}
        found = at_work(runtime)
        assert set(found) == set(TEAM.split("+"))
        if told is not None:
            assert list(found.values()) == pytest.approx(told)
        assert sum(found.values()) == pytest.approx(1)


@pytest.mark.capability("split.spatial")
@pytest.mark.parametrize("name", SPATIAL)
@pytest.mark.parametrize("shares", [None, UNEQUAL])
def test_height_with_what_kernels_reach(name: str, shares: tuple[int, int] | None) -> None:
    compare(*SPATIAL[name], Split(how="spatial", shares=shares), "onnxruntime")


@pytest.mark.capability("split.columns-block")
@pytest.mark.parametrize(
    ("name", "block"), [*((name, 4) for name in COLUMNS), ("linear", 1), ("depthwise", 3)]
)
def test_columns_in_blocks(name: str, block: int) -> None:
    compare(*COLUMNS[name], Split(how="columns", block=block), "onnxruntime")


@pytest.mark.capability("split.columns-block")
@pytest.mark.parametrize("name", ["linear", "convolution", "feed forward"])
def test_columns_in_unequal_shares(name: str) -> None:
    compare(*COLUMNS[name], Split(how="columns", block=2, shares=UNEQUAL), "onnxruntime")


@pytest.mark.capability("split.depth-half")
@pytest.mark.parametrize("name", DEPTH)
@pytest.mark.parametrize("shares", [None, UNEQUAL])
def test_depth_is_summed_up(name: str, shares: tuple[int, int] | None) -> None:
    compare(*DEPTH[name], Split(how="depth", shares=shares), "onnxruntime")


def test_what_engines_are_said_to_do_is_what_they_do() -> None:
    """Seven rows, 3:1; ten columns in blocks of four; twelve channels, 3:1."""
    image = (lambda: nn.Conv2d(6, 4, 3, padding=1), (2, 6, 7, 7))
    linear = (lambda: nn.Linear(12, 10), ROWS)
    rows, columns = Split(how="spatial", shares=(3, 1)), Split(how="columns", block=4)
    compare(*image, rows, "onnxruntime", told=[6 / 7, 1 / 7])
    compare(*linear, columns, "onnxruntime", told=[0.6, 0.4])
    channels = Split(how="depth", shares=(3, 1))
    compare(*linear, channels, "onnxruntime", told=[0.75, 0.25])


@pytest.mark.capability("split.ops")
@pytest.mark.parametrize("by", BACKENDS)
@pytest.mark.parametrize("how", ["columns", "depth"])
@pytest.mark.parametrize("lead", [(), (3,)])
def test_a_product_of_two_given_values(lead: tuple[int, ...], how: str, by: str) -> None:
    def draw() -> tuple[Tensor, Tensor]:
        return torch.randn(*lead, 6, 12), torch.randn(*lead, 12, 10)

    model, split = Given().eval(), Split(how=how, block=3 if how == "columns" else None)
    with gearshift.adapt(model, draw(), policy="keep") as runtime, torch.no_grad():
        rewrite = Rewrite(backend=by, threads=1)
        graph = runtime.program.graph
        runtime.swap(whole(graph, engine=TEAM, rewrite=rewrite, split=split))
        for _ in range(3):
            given = draw()
            assert error_between(model(*given), runtime(*given)) < 1e-5
        assert runtime.faults == {}
        assert set(at_work(runtime)) == set(TEAM.split("+"))


@pytest.mark.capability("split.ops")
@pytest.mark.parametrize("by", BACKENDS)
@pytest.mark.parametrize(
    ("how", "cases", "name"),
    [
        ("spatial", SPATIAL, "chain"),
        ("columns", COLUMNS, "feed forward"),
        ("depth", DEPTH, "linear"),
    ],
)
def test_backends_run_pieces(
    how: str, cases: dict[str, tuple[Callable[[], nn.Module], tuple[int, ...]]], name: str, by: str
) -> None:
    compare(*cases[name], Split(how=how, block=2 if how == "columns" else None), by)


@pytest.mark.parametrize(
    ("split", "model", "shape"),
    [
        (Split(how="spatial"), nn.Conv2d(64, 64, 3, padding=1), (1, 64, 96, 96)),
        (Split(how="columns", block=512), nn.Linear(1024, 1024), (256, 1024)),
        (Split(how="depth"), nn.Linear(1024, 1024), (256, 1024)),
    ],
    ids=str,
)
def test_parts_run_at_the_same_time(split: Split, model: nn.Module, shape: tuple[int, ...]) -> None:
    x = torch.randn(*shape)
    with gearshift.adapt(model.eval(), x, policy="keep") as runtime, torch.no_grad():
        rewrite = Rewrite(backend="onnxruntime", threads=1)
        runtime.swap(whole(runtime.program.graph, engine=TEAM, rewrite=rewrite, split=split))
        for _ in range(30):
            runtime(x)
        calls = [timing for _, timing in runtime._serving.timings()]
        together = [_overlap_s(next(iter(timing.spans.values()))) for timing in calls]
        assert median(together) > 0


def _overlap_s(stretches: Sequence[Stretch]) -> float:
    """Of two engines' busy intervals."""
    (_, begin_s, end_s, _), (_, also_s, until_s, _) = stretches
    return min(end_s, until_s) - max(begin_s, also_s)


@pytest.mark.parametrize(("how", "make", "shape", "reason"), REFUSED)
def test_what_is_not_proven_is_refused(
    how: str, make: Callable[[], nn.Module], shape: tuple[int, ...], reason: str
) -> None:
    with pytest.raises(PlanError, match=reason):
        compare(make, shape, Split(how=how), "onnxruntime")


def test_a_part_that_would_read_nothing_but_padding_is_refused() -> None:
    with pytest.raises(PlanError, match="beyond the border"):
        compare(
            lambda: nn.Conv2d(6, 6, 1, padding=12),
            IMAGE,
            Split(how="spatial", shares=(9, 1)),
            "onnxruntime",
        )


def test_what_takes_much_memory_to_look_into_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gearshift.act.lower.anatomy.MOST_BYTES", 1000)
    with pytest.raises(PlanError, match=r"would take 0\.0 GB"):
        compare(lambda: nn.Conv2d(6, 6, 3), IMAGE, Split(how="spatial"), "onnxruntime")
