"""Regions formed anew: looked into, divided, merged, left alone."""

from dataclasses import replace

import pytest

from gearshift.decide.learn.dqn import Dqn
from gearshift.decide.policy import How, Outcome, Proposal
from gearshift.decide.regions.former import Former, _Scene
from gearshift.decide.regions.forming import Forming
from gearshift.decide.rewrite.actions import ENTRIES
from gearshift.decide.rewrite.agent import ROLE
from gearshift.decide.rewrite.players import Learned, Measured
from gearshift.decide.rewrite.state import INPUTS, foreseen
from gearshift.decide.rewrite.view import RewriteView
from gearshift.errors import UsageError
from gearshift.ir import pieces
from gearshift.ir.measurement import Measurement, Metric, Source
from gearshift.ir.pieces import Piece, cover
from gearshift.ir.roofline import Caches, Roofline
from gearshift.ir.snapshot import Sample, Situation, Snapshot
from gearshift.ir.work import Work
from gearshift.plan import Plan, Region, Rewrite

QUIET = Situation(signature="x", neighbours=0)
ORT = Rewrite(backend="onnxruntime", threads=2)
CACHES = Caches(l1_bytes=32 << 10, l2_bytes=512 << 10, l3_bytes=16 << 20, origin="made up")
ROOFLINE = Roofline(
    num_threads=2,
    caches=CACHES,
    peak_flops_s=1e11,
    l1_bytes_s=1e12,
    l2_bytes_s=5e11,
    l3_bytes_s=1e11,
    dram_bytes_s=2e10,
    took_s=0.1,
)
QUICK = ("eager", "onnxruntime")


def piece(
    name: str, *children: Piece, flops: float = 1e8, backends: tuple[str, ...] = QUICK
) -> Piece:
    ops = tuple(op for child in children for op in child.ops) or (name,)
    total = sum(child.work.flops for child in children) or flops
    return Piece(
        name=name,
        ops=ops,
        identity=f"id {name}",
        kind="linear",
        work=Work(flops=total, moved_bytes=total / 100, set_bytes=total / 100),
        read_bytes=1000,
        made_bytes=1000,
        backends=backends,
        children=children,
    )


ROOT = piece("all", piece("a"), piece("bad", piece("b1"), piece("b2")), piece("c"))
WHOLE = Plan(regions=(Region(ops=ROOT.ops, rewrite=ORT),))


def former(**settings: float) -> Former:
    forming = Forming(**settings)  # type: ignore[arg-type]
    return Former(
        root=ROOT, signature=QUIET.signature, player=Measured(), forming=forming, num_cores=2
    )


def snapshot(
    plan: Plan, region_s: dict[str, float], rows: tuple[Measurement, ...] = (), at_s: float = 0.0
) -> Snapshot:
    total_s = sum(region_s.values())
    sample = Sample(
        plan=plan.fingerprint, situation=QUIET, seconds=(total_s,) * 10, region_s=region_s
    )
    return Snapshot(
        at_s=at_s,
        plan=plan.fingerprint,
        trial=None,
        situation=QUIET,
        samples=(sample,),
        served_s=at_s,
        measured=rows,
    )


def row(region: Region, seconds: float) -> Measurement:
    identity = next(f"id {p.name}" for p in ROOT.walk() if p.ops == region.ops)
    return Measurement(
        region=identity,
        ops=region.ops,
        engine=region.engine,
        rewrite=region.setting,
        latency_s=seconds,
        held_bytes=Metric(value=0, source=Source.MODELLED),
        max_error=0.0,
        build_s=0.1,
    )


def is_old(situation: Situation, plan: str) -> bool:
    return False


def ask(
    asked: Former, plan: Plan, region_s: dict[str, float], rows: tuple[Measurement, ...] = ()
) -> Proposal | None:
    """After a minute of calls on the plan."""
    asked.see(snapshot(plan, region_s))
    seen = snapshot(plan, region_s, rows, at_s=60.0)
    asked.see(seen)
    return asked.propose(plan, sum(region_s.values()), seen, ROOFLINE, is_old)


def measured(proposal: Proposal) -> Outcome:
    return Outcome(plan=proposal.plan.fingerprint, how=How.MEASURE, kept=True, why="measured")


def times(region: Region) -> float:
    """By ONNX Runtime `bad` takes fifty times as long as by PyTorch."""
    bad, good = (0.025, 0.001) if region.rewrite.backend == "onnxruntime" else (0.0005, 0.003)
    return sum(bad if op[0] == "b" else good for op in region.ops)


@pytest.mark.capability("region.divide")
def test_a_part_that_a_backend_runs_badly_is_found_and_given_to_another() -> None:
    asked, rows, seen = former(), (), []
    for _ in range(10):
        proposal = ask(asked, WHOLE, {"a": 0.052}, rows)
        assert proposal is not None
        seen.append(proposal.how)
        if proposal.how is How.TRY:
            break
        rows = tuple(row(region, times(region)) for region in proposal.plan.regions)
        asked.learn(measured(proposal))
    assert How.MEASURE in seen
    assert proposal.how is How.TRY
    regions = [(r.ops, r.rewrite.backend) for r in proposal.plan.regions]
    assert regions == [(("a",), "onnxruntime"), (("b1", "b2"), "eager"), (("c",), "onnxruntime")]
    assert proposal.predicted_s is not None
    assert proposal.predicted_s < 0.01
    assert "falls short" in proposal.reason


def test_a_region_near_its_roofline_is_left_alone() -> None:
    roof_s = ROOT.work.flops / ROOFLINE.peak_flops_s
    assert ask(former(), WHOLE, {"a": 1.2 * roof_s}) is None
    assert ask(former(), WHOLE, {"a": 1.5 * roof_s}) is not None
    assert ask(former(performance_threshold=0.5), WHOLE, {"a": 1.5 * roof_s}) is None
    assert ask(former(performance_threshold=0.0), WHOLE, {"a": 100 * roof_s}) is None


def test_where_nothing_helps_it_is_looked_into_level_by_level_and_then_left() -> None:
    asked, rows = former(), ()
    parts = []
    for _ in range(20):
        proposal = ask(asked, WHOLE, {"a": 0.052}, rows)
        if proposal is None:
            break
        assert proposal.how is How.MEASURE, "dividing would gain nothing"
        parts += [region.ops for region in proposal.plan.regions]
        rows = tuple(row(region, 0.0125 * len(region.ops)) for region in proposal.plan.regions)
        asked.learn(measured(proposal))
    assert proposal is None
    assert ("b1", "b2") in parts
    assert ("b1",) in parts, "recursively"


def test_what_cannot_be_measured_is_not_asked_for_again() -> None:
    asked = former()
    for _ in range(20):
        proposal = ask(asked, WHOLE, {"a": 0.052})
        if proposal is None:
            return
        asked.learn(measured(proposal))
    raise AssertionError("asks on and on")


def test_what_was_put_off_is_asked_for_again() -> None:
    asked = former()
    first = ask(asked, WHOLE, {"a": 0.052})
    assert first is not None
    asked.learn(replace(measured(first), kept=False, why="not now: no time"))
    again = ask(asked, WHOLE, {"a": 0.052})
    assert again is not None
    assert again.plan == first.plan


@pytest.mark.capability("region.merge")
def test_neighbours_whose_boundary_costs_too_much_are_merged() -> None:
    regions = tuple(Region(ops=part.ops, rewrite=ORT) for part in ROOT.children)
    plan = Plan(regions=regions)
    small = {region.name: 0.0004 for region in regions}
    proposal = ask(former(), plan, small)
    assert proposal is not None
    assert proposal.how is How.TRY
    assert proposal.plan == WHOLE
    assert "merged" in proposal.reason
    assert ask(former(merging_threshold=0.5), plan, small) is None
    large = {region.name: 0.002 for region in regions}
    assert ask(former(), plan, large) is None


def test_regions_of_different_backends_are_not_merged() -> None:
    eager = Region(ops=ROOT.children[1].ops)
    plan = Plan(regions=(*(Region(ops=(op,), rewrite=ORT) for op in "ac"), eager))
    plan = Plan(regions=(plan.regions[0], eager, plan.regions[1]))
    assert ask(former(), plan, {"a": 0.0004, "b1": 0.0004, "c": 0.0004}) is None


def test_beside_neighbours_nothing_is_formed() -> None:
    asked, seen = former(), snapshot(WHOLE, {"a": 0.052}, at_s=60.0)
    crowded = replace(seen, situation=Situation(signature="x", neighbours=1))
    asked.see(replace(crowded, at_s=0.0))
    asked.see(crowded)
    assert asked.propose(WHOLE, 0.052, crowded, ROOFLINE, is_old) is None


def test_what_has_just_begun_to_serve_is_left_in_peace() -> None:
    asked, seen = former(), snapshot(WHOLE, {"a": 0.052})
    asked.see(seen)
    soon = replace(seen, at_s=5.0)
    asked.see(soon)
    assert asked.propose(WHOLE, 0.052, soon, ROOFLINE, is_old) is None


def test_pieces_cover_a_region_with_as_few_as_can_be() -> None:
    assert cover(ROOT, ROOT.ops) == [ROOT]
    assert [p.name for p in cover(ROOT, ("a", "b1", "b2")) or []] == ["a", "bad"]
    assert [p.name for p in cover(ROOT, ("a", "b1")) or []] == ["a", "b1"]
    assert cover(ROOT, ("a", "nobody's")) is None


def test_pieces_cross_as_plain_data() -> None:
    assert pieces.from_data(pieces.to_data(ROOT)) == ROOT


@pytest.mark.parametrize(
    "wrong",
    [
        {"initial_granularity": -1},
        {"performance_threshold": float("nan")},
        {"merging_threshold": -0.1},
        {"rl_training_epochs": 1.5},
    ],
)
def test_what_makes_no_sense_is_refused_by_name(wrong: dict[str, float]) -> None:
    with pytest.raises(UsageError, match=next(iter(wrong))):
        Forming(**wrong)  # type: ignore[arg-type]


def test_the_model_itself_is_looked_into_though_it_tells_no_regions_time() -> None:
    eager = Plan(regions=(Region(ops=ROOT.ops),))
    asked, seen = former(), snapshot(eager, {}, at_s=60.0)
    asked.see(replace(seen, at_s=0.0))
    asked.see(seen)
    proposal = asked.propose(eager, 0.052, seen, ROOFLINE, is_old)
    assert proposal is not None
    assert proposal.how is How.MEASURE


def test_calls_of_other_sizes_form_no_regions_and_what_is_measured_stays_with_the_example() -> None:
    asked, part = former(), Region(ops=("a",))
    seen = snapshot(WHOLE, {"a": 0.052}, (row(part, 0.003),), at_s=60.0)
    seen = replace(seen, situation=Situation(signature="y", neighbours=0))
    asked.see(replace(seen, at_s=0.0, measured=()))
    asked.see(seen)
    assert asked.propose(WHOLE, 0.052, seen, ROOFLINE, is_old) is None
    assert asked.ledger.alone_s == {(QUIET.signature, "id a", part.setting): 0.003}


def test_if_not_all_neighbours_can_be_merged_two_of_them_are() -> None:
    regions = tuple(Region(ops=part.ops, rewrite=ORT) for part in ROOT.children)
    plan, asked = Plan(regions=regions), former()
    seen = snapshot(plan, {region.name: 0.0004 for region in regions}, at_s=60.0)
    asked.see(replace(seen, at_s=0.0))
    asked.see(seen)

    def lost(situation: Situation, fingerprint: str) -> bool:
        return fingerprint == WHOLE.fingerprint

    proposal = asked.propose(plan, 0.0012, seen, ROOFLINE, lost)
    assert proposal is not None
    assert "merged" in proposal.reason
    assert len(proposal.plan.regions) == 2


def test_a_boundary_between_regions_by_openvino_costs_more() -> None:
    found = {}
    for backend in ("onnxruntime", "openvino"):
        rewrite = Rewrite(backend=backend, threads=2)
        regions = tuple(Region(ops=part.ops, rewrite=rewrite) for part in ROOT.children)
        region_s = {region.name: 0.0015 for region in regions}
        found[backend] = ask(former(), Plan(regions=regions), region_s)
    assert found["onnxruntime"] is None
    assert found["openvino"] is not None
    assert "merged" in found["openvino"].reason


def test_of_what_is_made_of_no_pieces_no_roof_is_known() -> None:
    asked = replace(former(), root=replace(ROOT, children=()))
    plan = Plan(regions=(Region(ops=("a",)), Region(ops=("b1", "b2", "c"))))
    scene = _Scene(asked, plan, 1.0, QUIET, ROOFLINE, {"a": 0.5, "b1": 0.5})
    assert scene.falling_short() == []


def test_what_is_slow_to_build_comes_last_and_for_the_worst_part_alone() -> None:
    able = (*QUICK, "inductor")
    root = piece("all", piece("a", backends=able), piece("c", backends=able), backends=able)
    plan, asked = Plan(regions=(Region(ops=root.ops, rewrite=ORT),)), replace(former(), root=root)
    seen: list[tuple[Region, ...]] = []
    rows: tuple[Measurement, ...] = ()
    for _ in range(20):
        proposal = ask(asked, plan, {"a": 0.05}, rows)
        if proposal is None:
            break
        seen.append(proposal.plan.regions)
        rows = tuple(row(r, 0.02 if r.ops == ("a",) else 0.03) for r in proposal.plan.regions)
        asked.learn(measured(proposal))
    assert proposal is None
    backends = [[region.rewrite.backend for region in regions] for regions in seen]
    assert backends[-2:] == [["inductor"], ["inductor"]]
    assert all("inductor" not in some for some in backends[:-2])
    assert {regions[0].ops for regions in seen[-2:]} == {("c",)}


class Thorough(Learned):
    """Learns as the agent does, but measures everything."""

    def choose(self, view: RewriteView) -> str:
        return Measured().choose(view)


@pytest.mark.capability("region.rl")
def test_the_agent_takes_its_lessons_though_it_hears_that_something_was_measured_first() -> None:
    dqn = Dqn.fresh(len(INPUTS), len(ENTRIES), 0, ROLE.settings, foreseen)
    learning = Forming(rl_training_epochs=3)
    asked = replace(former(), player=Thorough(dqn, learning=True), forming=learning)
    rows, num_rows = (), 0
    for _ in range(10):
        proposal = ask(asked, WHOLE, {"a": 0.052}, rows)
        if proposal is None or proposal.how is not How.MEASURE:
            break
        rows = tuple(row(region, times(region)) for region in proposal.plan.regions)
        asked.learn(measured(proposal))
        num_rows += sum(region.rewrite != ORT for region in proposal.plan.regions)
    assert num_rows > 0
    assert dqn.steps == 3 * num_rows
