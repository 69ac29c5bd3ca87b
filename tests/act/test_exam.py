"""The model is asked once for each signature, and again when its weights have changed."""

import pytest
import torch
from torch import nn

from gearshift.act import exam
from gearshift.act.exam import Exams
from gearshift.capture.load import capture


def counted(model: nn.Module) -> list[int]:
    calls: list[int] = []
    model.register_forward_pre_hook(lambda *_: calls.append(1))
    return calls


def test_the_model_is_asked_once() -> None:
    model = nn.Linear(4, 4).eval()
    fragment = capture(model, (torch.randn(2, 4),), {}).fragments[0]
    calls = counted(model)
    exams = Exams()
    first = exams.of(fragment, fragment.example)
    asked = len(calls)
    assert asked == len(first.usual) + len(first.small) + len(first.extreme) + len(first.odd)
    assert exams.of(fragment, fragment.example) is first
    assert len(calls) == asked
    assert exams.of(fragment, [torch.randn(3, 4)]) is not first, "of other sizes it is asked anew"


def test_new_weights_are_asked_anew() -> None:
    model = nn.Linear(4, 4).eval()
    fragment = capture(model, (torch.randn(2, 4),), {}).fragments[0]
    exams = Exams()
    before = exams.of(fragment, fragment.example)
    with torch.no_grad():
        model.weight.add_(1.0)
    after = exams.of(fragment.rebound(), fragment.example)
    assert not torch.equal(before.usual[0].answer, after.usual[0].answer)


def test_what_the_model_refuses_is_not_asked() -> None:
    class Positive(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return x + 1

    model = Positive().eval()
    fragment = capture(model, (torch.rand(2, 4) + 1,), {}).fragments[0]

    def refuse(module: nn.Module, args: tuple[torch.Tensor]) -> None:
        if not bool((args[0] > 0.5).all()):
            raise ValueError("not for me")

    model.register_forward_pre_hook(refuse)
    made = exam.make_exam(fragment, fragment.example)
    assert len(made.extreme) == 1, "zeros and negatives are refused"
    assert len(made.usual) == 3, "the example itself, where what was drawn is refused"


def test_a_large_one_is_not_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(exam, "MAX_BYTES", 10)
    fragment = capture(nn.Linear(4, 4).eval(), (torch.randn(2, 4),), {}).fragments[0]
    exams = Exams()
    assert exams.of(fragment, fragment.example) is not exams.of(fragment, fragment.example)
