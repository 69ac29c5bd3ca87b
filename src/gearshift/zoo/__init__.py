"""The built-in models, each a name and a factory giving a model with its example inputs.
Knows torch and nothing else of gearshift: a zoo model is treated like any user's model.
"""

from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from gearshift.zoo.lstm_tagger import lstm_tagger
from gearshift.zoo.minilm import minilm
from gearshift.zoo.mlp import mlp
from gearshift.zoo.mobilenet import mobilenet_v2
from gearshift.zoo.resnet import resnet18
from gearshift.zoo.two_tower import two_tower
from gearshift.zoo.unet import unet

__all__ = ["ZOO"]

Built = tuple[nn.Module, tuple[Any, ...]]

SEED = 0


def _build(draw: Callable[[], Built]) -> Built:
    """Draw a model and its inputs on the CPU from a fixed seed, leaving the caller's generators."""
    # Seeding the CPU generator alone: torch.manual_seed would also reset CUDA's.
    with torch.random.fork_rng(devices=[]), torch.device("cpu"):
        torch.default_generator.manual_seed(SEED)
        model, inputs = draw()
        _settle_norms(model.eval(), inputs)
    return model, inputs


@torch.no_grad()
def _settle_norms(model: nn.Module, inputs: tuple[Tensor, ...]) -> None:
    """Give every BatchNorm random scales and the statistics it sees on the example inputs."""
    norms = [module for module in model.modules() if isinstance(module, nn.BatchNorm2d)]
    if not norms:
        return
    for norm in norms:
        nn.init.uniform_(norm.weight, 0.5, 1.5)
        nn.init.normal_(norm.bias, std=0.1)
        norm.train().momentum = 1.0
    model.double()(*(x.double() if x.is_floating_point() else x for x in inputs))
    for norm in norms:
        norm.eval().momentum = 0.1
        _round_statistics(norm)
    model.float()


def _round_statistics(norm: nn.BatchNorm2d) -> None:
    """Keep only the leading bits of the running mean and variance."""
    # A sum's last bits depend on the number of threads; summed in double and rounded they do not.
    for statistic in norm.buffers():
        statistic.copy_(statistic.bfloat16())


ZOO: dict[str, Callable[[], Built]] = {
    "resnet18": partial(_build, resnet18),
    "mobilenet_v2": partial(_build, mobilenet_v2),
    "minilm": partial(_build, minilm),
    "mlp": partial(_build, mlp),
    "lstm_tagger": partial(_build, lstm_tagger),
    "unet": partial(_build, unet),
    "two_tower": partial(_build, two_tower),
}
