"""The live view: fits the terminal, drops the oldest decisions, heeds NO_COLOR."""

import io
import re
from dataclasses import replace

import pytest
from rich.console import Console

from gearshift.plan.decision import Decision
from gearshift.view.terminal import Layer, Load, Moment, Screen


def moment(num_decisions: int = 30) -> Moment:
    decisions = [
        Decision(
            at_s=float(i),
            plan=f"f{i}",
            summary=f"plan {i}",
            reason="never measured; may be better " * 4,
            outcome="serves: 50.1% faster over 7 calls each in turns",
        )
        for i in range(num_decisions)
    ]
    return Moment(
        model="resnet18",
        plan="onnxruntime x2",
        trial=None,
        building=None,
        situation="float32[1, 3, 224, 224], 1 neighbour",
        now_s=0.0212,
        start_s=0.044,
        reference="eager",
        reference_s=0.043,
        lately_s=[0.04, 0.03, 0.02],
        engines=[Load(name="caller", busy=0.98, run_delay=0.02)],
        cores=[Load(name="core 0", busy=1.0, others=0.5), Load(name="core 1", busy=None)],
        layers=[],
        decisions=decisions,
        over=0.5,
        left_s=20.0,
    )


def drawn(width: int, height: int, what: Moment) -> list[str]:
    out = io.StringIO()
    console = Console(file=out, width=width, height=height, color_system=None)
    console.print(Screen(what))
    return out.getvalue().rstrip("\n").split("\n")


@pytest.mark.parametrize(("width", "height"), [(80, 24), (140, 45)])
def test_it_fits(width: int, height: int) -> None:
    lines = drawn(width, height, moment())
    assert len(lines) < height
    assert all(len(line.rstrip()) <= width for line in lines)
    text = "\n".join(lines)
    for part in ("resnet18", "onnxruntime x2", "21.20 ms", "44.00 ms", "2.03x eager", "20 s left"):
        assert part in text
    assert "plan 29" in text, "the newest decision"
    assert "plan 0 " not in text, "not the oldest"


def test_before_anything_is_decided_it_says_so() -> None:
    assert any("nothing decided yet" in line for line in drawn(80, 24, moment(0)))


@pytest.mark.parametrize(("width", "height"), [(80, 24), (40, 12), (140, 45)])
def test_many_engines_and_cores_leave_room_for_the_rest(width: int, height: int) -> None:
    engines = [Load(name=f"cpu:{i}", busy=0.5) for i in range(12)]
    cores = [Load(name=f"core {i}", busy=0.5) for i in range(64)]
    lines = drawn(width, height, replace(moment(), engines=engines, cores=cores))
    assert len(lines) < height
    text = "\n".join(lines)
    assert "64 cores" in text
    assert "plan 29" in text
    assert "20 s left" in text


def test_a_plan_put_in_force_has_its_reason_on_a_narrow_screen_too() -> None:
    dropped = Decision(at_s=1.0, plan="f", reason="for this", outcome="dropped: slower")
    serves = Decision(at_s=2.0, plan="g", reason="for that", outcome="serves: faster")
    text = "\n".join(drawn(80, 24, replace(moment(), decisions=[dropped, serves])))
    assert "for that" in text
    assert "for this" not in text


@pytest.mark.parametrize(("width", "height"), [(80, 24), (40, 12), (140, 45)])
def test_recurrent_layers_have_a_row_each_as_far_as_they_fit(width: int, height: int) -> None:
    layers = [Layer(name=f"layer {i}", setting="by 16", step_s=25e-6) for i in range(30)]
    lines = drawn(width, height, replace(moment(), layers=layers))
    assert len(lines) < height
    text = "\n".join(lines)
    assert "20 s left" in text
    told = [part in text for part in ("by 16", "25 us", "more layers")]
    assert told == [height > 12] * 3, "on a low screen there is no room for them"


def test_it_tells_what_is_under_way() -> None:
    text = "\n".join(drawn(80, 24, replace(moment(), building="openvino x1", trial="openvino x1")))
    assert "building openvino x1" in text
    assert "in turns with openvino x1" in text


def test_no_colour_where_none_is_wanted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NO_COLOR", "1")
    out = io.StringIO()
    Console(file=out, width=80, height=24, force_terminal=True).print(Screen(moment()))
    assert not re.search(r"\x1b\[[0-9;]*3[0-9]", out.getvalue())
