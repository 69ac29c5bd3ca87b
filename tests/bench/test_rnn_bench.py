"""The recurrent benchmark: its models by name, its contenders, its arithmetic."""

from typing import Any

import numpy as np
import pytest
import torch

from gearshift.bench import rnn_models
from gearshift.bench.models import package_folder
from gearshift.bench.rnn import Pace, settings, switch_s
from gearshift.bench.rnn_score import summary_of
from gearshift.bench.side_score import case_of
from gearshift.capture.load import load

SMALL = "gearshift.bench.rnn_models:lstm_l2_h8_t6_b3"


@pytest.mark.parametrize("lengths", ["ragged", "skewed"])
def test_a_ragged_batch_packed_and_padded(lengths: str) -> None:
    packed, (x, found) = load(f"{SMALL}_{lengths}")
    padded, (same,) = load(f"{SMALL}_{lengths}_padded")
    padded.load_state_dict(packed.state_dict())
    assert torch.equal(x, same)
    assert int(found.max()) == 6
    with torch.no_grad():
        one, other = packed(x, found), padded(x)
    for row, length in enumerate(found.tolist()):
        assert torch.allclose(one[row, :length], other[row, :length], atol=1e-6)
        assert not one[row, length:].any()


def test_a_streaming_model_returns_its_state() -> None:
    model, args = load(f"{SMALL}_streaming")
    _, (hidden, cell) = model(*args)
    assert hidden.shape == cell.shape == (2, 3, 8)


def test_silero_vad_tells_what_its_own_file_tells() -> None:
    import onnxruntime

    model, (windows, state) = load("gearshift.bench.rnn_models:silero_l1_h128_t5_b1_streaming")
    file = package_folder("silero_vad") / "data" / "silero_vad.onnx"
    session = onnxruntime.InferenceSession(file, providers=["CPUExecutionProvider"])
    theirs, carried = [], np.zeros((2, 1, 128), np.float32)
    for number in range(windows.shape[1]):
        given = {"input": windows[:, number].numpy(), "state": carried, "sr": np.array(16000)}
        told, carried = session.run(None, given)
        theirs.append(float(told[0, 0]))
    with torch.no_grad():
        ours, (hidden, cell) = model(windows, state)
    assert ours[0, :, 0].tolist() == pytest.approx(theirs, abs=1e-4)
    assert np.allclose(torch.cat([hidden, cell]).numpy(), carried, atol=1e-4)


def test_other_names_are_no_models() -> None:
    with pytest.raises(AttributeError):
        rnn_models.__getattr__("lstm_l2_h8")


def test_every_case_has_a_model_of_that_name() -> None:
    assert all(rnn_models.NAME.fullmatch(name) for name in Pace().cases)


def test_onnx_runs_a_ragged_batch_padded() -> None:
    ragged, uniform = (settings(f"lstm_l1_h8_t6_b3_{kind}") for kind in ("ragged", "uniform"))
    assert {"padded", "padded x1"} <= ragged.keys() - uniform.keys()
    assert ragged["onnxruntime x1"].instead.endswith("_padded")
    assert ragged["eager"].instead == uniform["onnxruntime"].instead == ""


def answers(**seconds: float) -> dict[str, list[dict[str, Any]]]:
    return {
        name.replace("_", " "): [{"call_s": [s] * 4, "cpu_s": 0.0, "max_error": 0.0}] * 2
        for name, s in seconds.items()
    }


def test_ratios_are_of_the_best_of_each_kind() -> None:
    case = case_of(
        answers(
            gearshift=0.01,
            eager=0.04,
            eager_x1=0.02,
            onnxruntime=0.03,
            onnxruntime_again=0.03,
            openvino=0.05,
        )
    )
    assert case["vs_eager"] == pytest.approx(4)
    assert case["vs_best_peer"] == pytest.approx(2), "torch on one thread is a peer, too"
    assert case["vs_best_static"] == case["vs_torch"] == pytest.approx(2)
    assert case["p95_vs_eager"] == pytest.approx(4)
    assert set(case["peers_s"]) == {"eager", "eager x1", "onnxruntime", "openvino"}
    assert case["noise"] == pytest.approx(1)


def test_groups_are_told_apart_and_what_failed_is_left_out() -> None:
    about = {"layers": 2, "steps": 100, "lengths": "uniform", "trace": "quiet"}
    ratios = dict.fromkeys(("vs_eager", "vs_best_peer", "vs_best_static", "vs_torch"), 2.0)
    shallow = {"case": {**about, "layers": 1}, **ratios, "vs_best_peer": 0.5, "noise": 1.0}
    deep = {"case": about, **ratios, "noise": 1.0}
    told = summary_of([shallow, deep, {"case": {"model": "odd"}, "failed": "why"}])
    assert told["summary"]["quiet"]["vs_best_peer"]["geometric_mean"] == pytest.approx(1)
    long = told["summary"]["quiet, two layers and 100 steps or more, uniform"]
    assert long["vs_best_peer"]["minimum"] == 2.0
    assert "neighbour" not in told["summary"]
    assert not told["void"]
    assert told["failed"] == 1
    assert summary_of([])["void"]


def test_a_peer_that_failed_is_left_out() -> None:
    case = case_of(answers(gearshift=0.01, eager=0.04, openvino=0.02, onnxruntime_again=0.03))
    assert case["vs_best_peer"] == pytest.approx(2)
    assert case["noise"] is None
    about = {"layers": 1, "steps": 1, "lengths": "uniform", "trace": "quiet"}
    assert summary_of([{"case": about, **case}])["void"], "nothing tells the noise"


def test_what_a_switch_of_settings_costs_is_measured() -> None:
    found = switch_s()
    assert found.keys() == {"settings", "engines"}
    assert all(0 < seconds < 0.1 for seconds in found.values())
