"""Recurrent layers while a model that has some is captured."""

import threading
from concurrent.futures import ThreadPoolExecutor

import torch
from torch import _VF, nn

from gearshift.capture.recurrent import kept_whole, torch_function


def test_others_may_train_a_recurrent_module_meanwhile() -> None:
    """One op of ours in place of torch's function has no gradient."""
    module = nn.LSTM(3, 4)

    def trained() -> torch.Tensor:
        module(torch.randn(5, 2, 3))[0].sum().backward()
        grad = module.weight_hh_l0.grad
        assert grad is not None
        return grad

    with kept_whole(), ThreadPoolExecutor(1) as other:
        assert other.submit(trained).result().abs().sum() > 0


def test_two_captures_at_once_end_each_by_itself() -> None:
    began, ended = threading.Event(), threading.Event()

    def first() -> None:
        with kept_whole():
            began.set()
            assert ended.wait(60)

    with ThreadPoolExecutor(1) as other:
        done = other.submit(first)
        assert began.wait(60)
        with kept_whole():
            assert _VF.lstm is not torch_function("lstm")
        assert _VF.lstm is not torch_function("lstm"), "the other is under way"
        ended.set()
        done.result()
    assert _VF.lstm is torch_function("lstm")
