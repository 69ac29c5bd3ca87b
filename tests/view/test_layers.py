"""Recurrent layers over time, drawn."""

import re
from dataclasses import replace

from gearshift.view.layers import layers_chart
from gearshift.view.story import Stride


def stride(layer: int, setting: str, begin_s: float, end_s: float) -> Stride:
    return Stride(
        layer=f"layer {layer}", setting=setting, begin_s=begin_s, end_s=end_s, step_s=2e-5
    )


def test_a_row_for_each_layer_and_a_colour_for_each_setting() -> None:
    strides = [
        stride(0, "all at once", 0.0, 2.0),
        stride(0, "by 16", 2.0, 4.0),
        stride(1, "by 16", 0.0, 4.0),
    ]
    drawn = layers_chart(strides)
    rect = r'<rect x="([\d.]+)" y="([\d.]+)" width="([\d.]+)"[^>]*class="(.*?)"'
    places = re.findall(rect, drawn)
    assert len(places) == len(strides)
    (_, row_0, wide_0, at_once), (_, row_1, _, by_16), (_, row_2, wide_2, also_by_16) = places
    assert row_0 == row_1 != row_2
    assert by_16 == also_by_16 != at_once
    assert float(wide_2) > 1.9 * float(wide_0)
    assert "layer 1: by 16, 20.0 us a step" in drawn


def test_a_line_where_a_setting_began_within_a_sequence() -> None:
    first, second = stride(0, "all at once", 0.0, 2.0), stride(0, "by 16", 2.0, 4.0)
    assert "<line" not in layers_chart([first, second])
    drawn = layers_chart([first, replace(second, switched=True)])
    (x,) = re.findall(r'<line x1="([\d.]+)"', drawn)
    (_, by_16) = re.findall(r'<rect x="([\d.]+)"', drawn)
    assert x == by_16
    assert "layer 0 goes on by 16 in the middle of a sequence" in drawn


def test_without_recurrent_layers_there_is_no_picture() -> None:
    assert layers_chart([]) == ""
