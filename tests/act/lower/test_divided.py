"""A region divided over two engines: the same answers, at the same time."""

import os
from collections.abc import Sequence
from statistics import median
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import gearshift
from gearshift.act.compile import any_shape_regions
from gearshift.act.engines import PinnedEngine, TeamEngine, check_engine, open_engine, parse_engine
from gearshift.act.lower.independence import Axis
from gearshift.act.lower.shares import Shares
from gearshift.act.lower.split import RowDivision
from gearshift.act.verify import error_between
from gearshift.errors import CompileError, GearshiftError, PlanError
from gearshift.plan import Region, Rewrite, Split
from gearshift.plan.plan import whole
from tests.act.lower.at_work import at_work

CORES = [f"cpu:{core}" for core in sorted(os.sched_getaffinity(0))[:2]]
TEAM = "+".join(CORES)
BACKENDS = ["onnxruntime", "openvino"]


class Sequences(nn.Module):
    """Rows in the second dimension, sequences in the first, two results, one of them per row."""

    def __init__(self) -> None:
        super().__init__()
        self.embed, self.mix = nn.Embedding(11, 6), nn.Linear(6, 6)

    def forward(self, tokens: Tensor, scale: Tensor) -> dict[str, Tensor]:
        embedded = self.embed(tokens).transpose(0, 1) * scale
        mixed = self.mix(embedded).softmax(-1)
        return {"steps": mixed.transpose(0, 1).reshape(-1, 6), "best": mixed.sum(0).argmax(-1)}


def example(num_rows: int = 5) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(num_rows)
    return torch.randint(11, (num_rows, 4), generator=generator), torch.tensor(1.5)


def divided(runtime: gearshift.Runtime, backend: str, split: Split) -> gearshift.Plan:
    rewrite = Rewrite(backend=backend, threads=1)
    return whole(runtime.program.graph, engine=TEAM, rewrite=rewrite, split=split)


def small_cnn() -> nn.Module:
    torch.manual_seed(0)
    layers = [nn.Conv2d(3, 4, 3, padding=1), nn.BatchNorm2d(4), nn.ReLU(), nn.MaxPool2d(2)]
    return nn.Sequential(*layers, nn.Flatten(), nn.Linear(64, 5)).eval()


def test_a_team_does_an_engines_duty() -> None:
    engines = [open_engine(parse_engine(name)) for name in CORES]
    team = TeamEngine(engines)
    assert team.spec.name == TEAM
    check_engine(team)
    for engine in engines:
        engine.close()


ROWS_OF_FIVE = {(1, 1): (3, 2), (7, 1): (5, 0), (0, 1): (0, 5), (3, 1): (4, 1)}


@pytest.mark.capability("split.rows-ratio")
@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("shares", [None, *ROWS_OF_FIVE])
def test_rows_in_any_ratio_give_the_models_answers(
    backend: str, shares: tuple[int, int] | None
) -> None:
    model, x = small_cnn(), torch.randn(5, 3, 8, 8)
    with gearshift.adapt(model, x, policy="keep") as runtime, torch.no_grad():
        runtime.swap(divided(runtime, backend, Split(shares=shares)))
        for _ in range(20):
            x = torch.randn(5, 3, 8, 8)
            assert error_between(model(x), runtime(x)) < 1e-5
        assert runtime.faults == {}
        found = at_work(runtime)
        assert sum(found.values()) == pytest.approx(1)
        assert set(found) <= set(CORES)
        if shares is not None:
            rows = dict(zip(CORES, ROWS_OF_FIVE[shares], strict=True))
            assert found == {engine: count / 5 for engine, count in rows.items()}


@pytest.mark.capability("split.rows-interleaved")
@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("num_rows", [2, 5])
def test_interleaved_rows_give_the_models_answers(backend: str, num_rows: int) -> None:
    """Also where a row is not the first dimension, and where it has several entries."""
    torch.manual_seed(0)
    model, given = Sequences().eval(), example(num_rows)
    with gearshift.adapt(model, given, policy="keep") as runtime, torch.no_grad():
        for split in (Split(how="interleaved"), Split()):
            runtime.swap(divided(runtime, backend, split))
            for _ in range(5):
                want, have = model(*given), runtime(*given)
                assert error_between(want["best"], have["best"]) == 0
                assert error_between(want["steps"], have["steps"]) < 1e-5
            assert runtime.faults == {}
            assert split.how != "interleaved" or set(at_work(runtime)) == set(CORES)


@pytest.mark.capability("split.rows-interleaved")
def test_even_rows_go_to_one_engine_and_odd_rows_to_the_other() -> None:
    division = RowDivision(
        runs=[nn.Identity()] * 2,
        intos=[None] * 2,
        num_rows=5,
        inputs=[Axis(0), None],
        outputs=[Axis(0)],
        sizes={2: (2,), 3: (3,)},
        shares=Shares(2, (3, 1)),
        interleaved=True,
    )
    parts = division.take([torch.arange(5), torch.tensor(7)])
    assert [part.inputs[0].tolist() for part in parts] == [[0, 2, 4], [1, 3]]
    assert [part.inputs[1:] for part in parts] == [[torch.tensor(7), 3], [torch.tensor(7), 2]]


@pytest.mark.capability("split.region")
def test_parts_run_at_the_same_time_and_are_gathered_once() -> None:
    layers = [nn.Conv2d(3, 64, 3), nn.ReLU(), nn.Conv2d(64, 64, 3), nn.ReLU()]
    model, x = nn.Sequential(*layers).eval(), torch.randn(4, 3, 64, 64)
    with gearshift.adapt(model, x, policy="keep") as runtime:
        runtime.swap(divided(runtime, "onnxruntime", Split(shares=(1, 1))))
        runtime.remember(32)
        for _ in range(32):
            runtime(x)
        calls = [timing.spans for _, timing in runtime._serving.timings()]
    shares_together = []
    for (first, begin_0, end_0, _), (second, begin_1, end_1, _) in (
        stretches for spans in calls for stretches in spans.values()
    ):
        assert [first, second] == CORES
        together_s = min(end_0, end_1) - max(begin_0, begin_1)
        shares_together.append(together_s / min(end_0 - begin_0, end_1 - begin_1))
    assert median(shares_together) > 0.5


def test_a_part_of_a_model_is_divided_the_rest_is_not() -> None:
    model, x = small_cnn(), torch.randn(4, 3, 8, 8)
    with gearshift.adapt(model, x, policy="keep") as runtime, torch.no_grad():
        ops = tuple(op.name for op in runtime.program.graph.ops)
        rewrite = Rewrite(backend="onnxruntime", threads=1)
        first = Region(ops=ops[:2], engine=TEAM, rewrite=rewrite, split=Split())
        runtime.swap(gearshift.Plan(regions=(first, Region(ops=ops[2:], rewrite=rewrite))))
        assert error_between(model(x), runtime(x)) < 1e-5
        assert "rows on" in runtime.plan.summary


def test_other_batches_are_served_by_a_divided_plan_too() -> None:
    model, x = small_cnn(), torch.randn(4, 3, 8, 8)
    with gearshift.adapt(model, x, policy="keep") as runtime, torch.no_grad():
        runtime.swap(divided(runtime, "onnxruntime", Split()))
        for num_rows in (1, 3, 7):
            other = torch.randn(num_rows, 3, 8, 8)
            for _ in range(5):
                assert error_between(model(other), runtime(other)) < 1e-5
                assert runtime.settle(60)
        assert runtime.faults == {}


def test_other_batches_have_all_threads_of_the_team_not_one_engine() -> None:
    """There are more sizes than builds of their own."""
    split = Region(
        ops=("a",), engine=TEAM, rewrite=Rewrite(backend="onnxruntime", threads=1), split=Split()
    )
    (undivided,) = any_shape_regions((split,))
    assert (undivided.engine, undivided.split, undivided.threads) == ("caller", None, 2)


def test_what_mixes_rows_is_refused_with_the_reason() -> None:
    class Centred(nn.Linear):
        def forward(self, x: Tensor) -> Tensor:
            mixed = super().forward(x)
            return mixed - mixed.mean(0)

    with gearshift.adapt(Centred(3, 3).eval(), torch.randn(4, 3), policy="keep") as runtime:
        with pytest.raises(PlanError, match="ReduceMean"):
            runtime.swap(divided(runtime, "onnxruntime", Split()))
        with pytest.raises(PlanError, match="eager does not run in parts"):
            runtime.swap(whole(runtime.program.graph, engine=TEAM, split=Split()))


def test_an_engine_that_fails_costs_no_call(monkeypatch: pytest.MonkeyPatch) -> None:
    model, x = small_cnn(), torch.randn(4, 3, 8, 8)
    with gearshift.adapt(model, x, policy="keep") as runtime, torch.no_grad():
        runtime.swap(divided(runtime, "onnxruntime", Split(shares=(1, 1))))
        broken = runtime.open_engine(CORES[1])

        def start(work: object, inputs: object) -> object:
            raise RuntimeError("this core is gone")

        assert isinstance(broken, PinnedEngine)
        monkeypatch.setattr(broken, "start", start)
        for _ in range(3):
            assert error_between(model(x), runtime(x)) < 1e-5
        assert runtime.settle(60)
        assert runtime.faults == {TEAM: 1}
        assert error_between(model(x), runtime(x)) < 1e-5
        (region,) = runtime.plan.regions
        assert (region.split, region.engine, region.threads) == (None, "caller", 2)
        assert CORES[0] in runtime.space.engines, "the other one is well"
        assert CORES[1] not in runtime.space.engines


def test_what_fails_to_be_joined_is_the_plans_fault_not_an_engines(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def join(*told: object) -> object:
        raise MemoryError("no room for the whole")

    model, x = small_cnn(), torch.randn(4, 3, 8, 8)
    with gearshift.adapt(model, x, policy="keep") as runtime, torch.no_grad():
        plan = divided(runtime, "onnxruntime", Split(shares=(1, 1)))
        runtime.swap(plan)
        monkeypatch.setattr(RowDivision, "join", join)
        assert error_between(model(x), runtime(x)) < 1e-5
        assert runtime.faults == {TEAM: 1}
        assert set(CORES) <= set(runtime.space.engines)
        with pytest.raises(GearshiftError, match="no room"):
            runtime.swap(plan)


@pytest.mark.parametrize("backend", BACKENDS)
def test_fewer_rows_than_engines_are_built_for_undivided(backend: str) -> None:
    model, x = small_cnn(), torch.randn(4, 3, 8, 8)
    with gearshift.adapt(model, x, policy="keep") as runtime, torch.no_grad():
        runtime.swap(divided(runtime, backend, Split()))
        for _ in range(6):
            lone = torch.randn(1, 3, 8, 8)
            assert error_between(model(lone), runtime(lone)) < 1e-5
            assert runtime.settle(60)
        (variants,) = runtime._serving.in_force.variants
        assert variants.refusals == {}
        (alone,) = [v for v in variants.built if v.signature == ((1, 3, 8, 8),)]
        (region,) = alone.regions
        assert (region.engine, region.split) == ("caller", None)
        assert (region.rewrite.backend, region.rewrite.threads) == (backend, 2)
        before = runtime._tallies.sum().outside_s
        runtime(torch.randn(1, 3, 8, 8))
        assert runtime._tallies.sum().outside_s == before, "not by the model itself"
        assert runtime.faults == {}


def test_sizes_that_cannot_be_built_leave_their_place_to_others() -> None:
    """Parts of a height must have a row for each engine."""
    model, x = nn.Conv2d(3, 4, 3, padding=1).eval(), torch.randn(2, 3, 8, 8)
    with gearshift.adapt(model, x, policy="keep") as runtime, torch.no_grad():
        runtime.swap(divided(runtime, "onnxruntime", Split(how="spatial")))
        sizes = [(rows, 3, 1, 8) for rows in range(2, 8)] + [(2, 3, 9, 8)]
        for size in sizes:
            for _ in range(4):
                other = torch.randn(size)
                assert error_between(model(other), runtime(other)) < 1e-5
                assert runtime.settle(60)
        (variants,) = runtime._serving.in_force.variants
        assert len(variants.refusals) == 6
        assert ((2, 3, 9, 8),) in [variant.signature for variant in variants.built]


def test_a_part_that_fails_when_a_plan_is_verified_refuses_it_for_good(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def broken(self: RowDivision, inputs: Sequence[Tensor], rows: range) -> list[Any]:
        return ["no tensor"]

    model, x = small_cnn(), torch.randn(4, 3, 8, 8)
    with gearshift.adapt(model, x, policy="keep") as runtime, torch.no_grad():
        monkeypatch.setattr(RowDivision, "_feeds", broken)
        with pytest.raises(CompileError, match="fails when run"):
            runtime.swap(divided(runtime, "onnxruntime", Split()))


def test_rows_are_counted_where_they_are() -> None:
    """Steps first, then rows: the steps mix."""

    class Steps(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            return x.softmax(0)

    with gearshift.adapt(Steps().eval(), torch.randn(128, 5, 6), policy="keep") as runtime:
        assert runtime.space.count_rows() == 5


def test_no_call_is_divided_as_lopsided_as_plans_are_verified() -> None:
    model, x = small_cnn(), torch.randn(4, 3, 8, 8)
    with gearshift.adapt(model, x, policy="keep") as runtime, torch.no_grad():
        for backend in BACKENDS:
            runtime.swap(divided(runtime, backend, Split()))
            runtime(x)
            assert set(at_work(runtime).values()) == {0.5}


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("how", ["rows", "interleaved", "columns", "depth"])
def test_divided_plans_serve_in_inference_mode(how: str, backend: str) -> None:
    """Threads of engines are in none."""
    model = nn.Linear(16, 12).eval()
    with gearshift.adapt(model, torch.randn(4, 16), policy="keep") as runtime:
        block = 4 if how == "columns" else None
        runtime.swap(divided(runtime, backend, Split(how=how, block=block)))
        for _ in range(3):
            x = torch.randn(4, 16)
            with torch.inference_mode():
                assert error_between(model(x), runtime(x)) < 1e-5
        assert runtime.faults == {}


@pytest.mark.parametrize("dtype", [torch.float64, torch.int32])
def test_other_types_of_numbers_are_divided_too(dtype: torch.dtype) -> None:
    class Sums(nn.Module):
        def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
            return (x * 3 + x).cumsum(1), x > 2

    given = (torch.arange(24).reshape(6, 4) % 7).to(dtype)
    with gearshift.adapt(Sums().eval(), given, policy="keep") as runtime, torch.no_grad():
        runtime.swap(divided(runtime, "onnxruntime", Split(shares=(1, 2))))
        sums, larger = runtime(given)
        assert torch.equal(sums, (given * 4).cumsum(1))
        assert torch.equal(larger, given > 2)
        assert at_work(runtime) == {CORES[0]: 2 / 6, CORES[1]: 4 / 6}


def test_what_several_threads_ask_at_once_is_not_mixed() -> None:
    from concurrent.futures import ThreadPoolExecutor

    model, x = small_cnn(), torch.randn(4, 3, 8, 8)
    with gearshift.adapt(model, x, policy="keep") as runtime, torch.no_grad():
        runtime.swap(divided(runtime, "onnxruntime", Split()))
        inputs = [torch.randn(4, 3, 8, 8) for _ in range(40)]
        wants = [model(given) for given in inputs]
        with ThreadPoolExecutor(4) as pool:
            answers = list(pool.map(runtime, inputs))
        assert all(error_between(w, a) < 1e-5 for w, a in zip(wants, answers, strict=True))


def test_what_cannot_be_looked_into_is_refused_and_adapt_unharmed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The rules meet something they were not written for: no split, and nothing else happens."""

    def odd(*_: object) -> bool:
        raise KeyError("unlike anything")

    monkeypatch.setattr("gearshift.act.lower.rows.is_independent", odd)
    model, x = small_cnn(), torch.randn(4, 3, 8, 8)
    with gearshift.adapt(model, x) as runtime, torch.no_grad():
        assert error_between(model(x), runtime(x)) < 1e-5
        with pytest.raises(PlanError, match="not understood"):
            runtime.swap(divided(runtime, "onnxruntime", Split()))
