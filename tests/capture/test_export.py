"""What comes in by torch.export: sizes, arguments, results, the models people really have."""

from typing import Any

import pytest
import torch
from torch import nn
from torch.utils import _pytree as pytree

import gearshift
from gearshift.plan import Rewrite
from gearshift.plan.plan import whole
from gearshift.zoo import ZOO


def equal(got: Any, expected: Any) -> None:
    """Same structure, same values within the promise for float32."""
    haves, have_spec = pytree.tree_flatten(got)
    wants, want_spec = pytree.tree_flatten(expected)
    assert have_spec == want_spec
    for have, want in zip(haves, wants, strict=True):
        if isinstance(want, torch.Tensor):
            largest = float(want.detach().abs().max()) if want.numel() else 0.0
            assert have.dtype == want.dtype
            torch.testing.assert_close(have, want.detach(), rtol=0, atol=1e-4 * (largest or 1.0))
        else:
            assert have == want


def on(runtime: gearshift.Runtime, backend: str) -> None:
    runtime.swap(whole(runtime.program.graph, rewrite=Rewrite(backend=backend)))


LARGE = ("resnet18", "mobilenet_v2", "unet")
"""Half a minute each."""


@pytest.mark.capability("core.adapt")
@pytest.mark.parametrize(
    "name", [pytest.param(n, marks=pytest.mark.soak) if n in LARGE else n for n in ZOO]
)
def test_every_built_in_model_runs_on_another_backend_at_several_sizes(name: str) -> None:
    model, example = ZOO[name]()
    with gearshift.adapt(model, example) as runtime, torch.no_grad():
        assert not runtime.program.uncaptured
        on(runtime, "onnxruntime")
        equal(runtime(*example), model(*example))
        assert runtime.coverage == 1.0
        larger = [torch.cat([leaf, leaf.flip(0), leaf]) for leaf in example]
        for _ in range(4):
            equal(runtime(*larger), model(*larger))
            assert runtime.settle(60)
        served = runtime.coverage
        equal(runtime(*larger), model(*larger))
        assert runtime.coverage > served, "the larger batch must be served by the plan, too"
        if name in ("minilm", "unet"):
            shorter = [leaf[..., : leaf.shape[-1] // 2].contiguous() for leaf in larger]
            equal(runtime(*shorter), model(*shorter))
            (whole_model,) = runtime.program.fragments
            sizes, leaves = whole_model.sizes, whole_model.leaves
            assert sizes.why_outside(leaves, shorter, lone=False) is None, "any length or width"


class Odd(nn.Module):
    """Nested arguments and results, constants, keywords, an input and a weight given back."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(6, 6)

    def forward(self, pair: Any, table: dict[str, Any], *, scale: float = 2.0, mask: Any = None):
        left, right = pair
        total = self.linear(left) * scale + table["offset"]
        if mask is not None:
            total = total * mask
        return {
            "total": total,
            "parts": [right, (total.sum(-1), None)],
            "rows": left.shape[0],
            "weight": self.linear.weight,
            "name": "odd",
        }


@pytest.mark.capability("core.adapt")
def test_nested_arguments_keywords_and_results() -> None:
    model = Odd().eval()

    def inputs(rows: int) -> tuple[Any, Any]:
        pair = (torch.randn(rows, 6), torch.randn(rows, 6))
        return pair, {"offset": torch.randn(rows, 6)}

    with gearshift.adapt(model, inputs(3), example_kwargs={"scale": 3.0}) as runtime:
        on(runtime, "onnxruntime")
        for rows in (3, 5, 5, 5, 5):
            pair, table = inputs(rows)
            got = runtime(pair, table, scale=3.0)
            equal(got, model(pair, table, scale=3.0))
            assert got["rows"] == rows
            assert got["weight"] is model.linear.weight
            assert got["parts"][0] is pair[1]
            assert runtime.settle(30)
        equal(runtime(table=table, pair=pair, scale=3.0, mask=None), model(pair, table, scale=3.0))
        equal(runtime(pair, table, scale=1.5), model(pair, table, scale=1.5))


def test_another_constant_does_not_run_on_the_captured_graph() -> None:
    class Scaled(nn.Module):
        def forward(self, x: torch.Tensor, scale: float) -> torch.Tensor:
            return x.relu() * scale

    model = Scaled().eval()
    x = torch.randn(2, 3)
    with gearshift.adapt(model, (x, 2.0)) as runtime:
        on(runtime, "onnxruntime")
        equal(runtime(x, 2.0), model(x, 2.0))
        assert runtime.coverage == 1.0
        equal(runtime(x, 4.0), model(x, 4.0))
        equal(runtime(x, 2), model(x, 2))
        assert runtime.coverage < 1.0


@pytest.mark.capability("core.adapt")
@pytest.mark.parametrize("cell", [nn.LSTM, nn.GRU])
@pytest.mark.parametrize("batch_first", [True, False])
def test_recurrent_layers_are_captured_at_any_length(cell: type, batch_first: bool) -> None:
    model = cell(5, 7, num_layers=2, bidirectional=True, batch_first=batch_first).eval()
    with gearshift.adapt(model, torch.randn(4, 6, 5)) as runtime, torch.no_grad():
        assert [op.kind for op in runtime.program.graph.ops].count("recurrent") == 1
        on(runtime, "onnxruntime")
        for _ in range(4):
            x = torch.randn(9, 3, 5)
            equal(runtime(x), model(x))
            assert runtime.settle(30)
        assert len(runtime.program.fragments[0].sizes.reads) == 2


@pytest.mark.capability("core.adapt")
@pytest.mark.parametrize(
    "family",
    ["bert", pytest.param("t5", marks=pytest.mark.soak), "gpt2", "vit", "resnet", "torch"],
)
def test_models_nobody_here_wrote(family: str) -> None:
    model, args, kwargs = foreign(family)
    with gearshift.adapt(model, args or None, example_kwargs=kwargs) as runtime, torch.no_grad():
        assert not runtime.program.uncaptured
        for backend in ("onnxruntime", "openvino"):
            on(runtime, backend)
            equal(runtime(*args, **kwargs), model(*args, **kwargs))
        assert runtime.coverage == 1.0


def foreign(family: str) -> tuple[nn.Module, tuple[Any, ...], dict[str, Any]]:
    import transformers as hf

    torch.manual_seed(0)
    small = {"hidden_size": 32, "num_hidden_layers": 1, "num_attention_heads": 4}
    small |= {"intermediate_size": 64}
    ids, image = torch.randint(0, 90, (2, 12)), torch.randn(1, 3, 32, 32)
    if family == "bert":
        model = hf.BertModel(hf.BertConfig(vocab_size=99, **small))
        return model.eval(), (), {"input_ids": ids, "attention_mask": torch.ones_like(ids)}
    if family == "t5":
        sizes = {"d_model": 32, "d_kv": 8, "d_ff": 64, "num_layers": 1, "num_heads": 4}
        model = hf.T5Model(hf.T5Config(vocab_size=99, use_cache=False, **sizes))
        return model.eval(), (), {"input_ids": ids, "decoder_input_ids": ids[:, :5]}
    if family == "gpt2":
        ends = {"bos_token_id": 1, "eos_token_id": 2}
        config = hf.GPT2Config(vocab_size=99, n_embd=32, n_layer=1, n_head=4, **ends)
        return hf.GPT2LMHeadModel(config).eval(), (), {"input_ids": ids, "use_cache": False}
    if family == "vit":
        return hf.ViTModel(hf.ViTConfig(image_size=32, patch_size=8, **small)).eval(), (image,), {}
    if family == "resnet":
        config = hf.ResNetConfig(
            embedding_size=8, hidden_sizes=[8, 16], depths=[1, 1], layer_type="basic"
        )
        return hf.ResNetModel(config).eval(), (image,), {}
    model = nn.Transformer(32, 4, 1, 1, 64, batch_first=True)
    return model.eval(), (torch.randn(2, 7, 32), torch.randn(2, 5, 32)), {}


def test_a_model_that_returns_an_opaque_object_is_captured_in_parts() -> None:
    import transformers as hf

    config = hf.GPT2Config(
        vocab_size=99, n_embd=32, n_layer=1, n_head=4, bos_token_id=1, eos_token_id=2
    )
    model = hf.GPT2LMHeadModel(config).eval()
    ids = torch.randint(0, 90, (2, 12))
    with pytest.warns(UserWarning, match="DynamicCache"):
        runtime = gearshift.adapt(model, {"input_ids": ids})
    with runtime, torch.no_grad():
        assert runtime.program.fragments
        on(runtime, "onnxruntime")
        equal(runtime(input_ids=ids).logits, model(input_ids=ids).logits)
        assert 0 < runtime.coverage < 1


def test_capture_works_under_no_grad_and_leaves_modes_as_found() -> None:
    model = nn.TransformerEncoderLayer(16, 2, 32, batch_first=True).eval()
    threads = torch.get_num_threads()
    with torch.no_grad():
        runtime = gearshift.adapt(model, torch.randn(2, 4, 16))
        assert not torch.is_grad_enabled()
    with runtime:
        assert not runtime.program.uncaptured
        on(runtime, "onnxruntime")
        x = torch.randn(2, 4, 16)
        equal(runtime(x), model(x))
        assert torch.is_grad_enabled()
        assert torch.get_num_threads() == threads
