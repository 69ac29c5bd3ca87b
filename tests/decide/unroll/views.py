"""A stack of recurrent layers as it might be seen."""

from collections.abc import Sequence
from typing import Any

from gearshift.decide.unroll.view import LayerView, UnrollView
from gearshift.ir.measurement import Metric, Source
from gearshift.ir.recurrent import LSTM, Stack
from gearshift.plan.unroll import AT_ONCE, Steps


def stack(num_layers: int = 2, **changes: Any) -> Stack:
    sizes = {"input_size": 3, "hidden_size": 4, **changes}
    return Stack(kind=LSTM, num_layers=num_layers, **sizes)


def measured(value: float) -> Metric:
    return Metric(value=value, source=Source.MEASURED)


def view(settings: Sequence[Steps] = (AT_ONCE, AT_ONCE), **changes: Any) -> UnrollView:
    """Ten steps of two rows, on one engine of one thread; all layers may change."""
    layers = tuple(LayerView(steps=steps, calls_kept=9) for steps in settings)
    usual: dict[str, Any] = {
        "stack": stack(len(layers)),
        "num_rows": 2,
        "num_steps": 10,
        "filled_share": 1.0,
        "inputs": "uniform",
        "num_engines": 1,
        "num_threads": 1,
        "layers": layers,
        "reference_s": 1e-3,
        "took_s": measured(1e-3),
        "dwell_calls": 2,
        "switches_left": 10,
    }
    return UnrollView(**{**usual, **changes})
