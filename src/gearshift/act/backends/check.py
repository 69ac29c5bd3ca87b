"""A checker that anyone can run on a backend of their own.

Must not know which backend it is.
"""

import torch

from gearshift.act.backends.protocol import Backend, Order
from gearshift.capture.program import Fragment
from gearshift.ir.topology import CALLER, EngineSpec


def check_backend(backend: Backend, fragment: Fragment) -> None:
    """Builds the whole fragment and compares it with the reference. Raises AssertionError."""
    ops = tuple(op.name for op in fragment.graph.ops)
    assert frozenset(ops) <= backend.runnable(fragment), f"{backend.name} cannot run all ops"
    settings = backend.rewrites(2)
    assert settings, "a backend offers at least one setting"
    names = [value.name for value in (*fragment.graph.inputs, *fragment.graph.results)]
    values = fragment.reference(fragment.example, names, fragment.weights)
    shapes = {name: tuple(value.shape) for name, value in values.items()}
    sizes = fragment.size_numbers(fragment.sizes.bind(fragment.example))
    for rewrite in settings:
        assert rewrite.backend == backend.name, "settings carry the backend's name"
        order = Order(
            fragment=fragment,
            ops=ops,
            rewrite=rewrite,
            engine=EngineSpec(name=CALLER, kind=CALLER, cores=(0,)),
            shapes=shapes,
            sizes=sizes,
        )
        built = backend.build(order)
        assert built.held_bytes == backend.held_bytes(order), (
            "held_bytes tells the truth beforehand"
        )
        outputs = built.run(*(values[name] for name in built.inputs))
        kept = [output.clone() for output in outputs]
        built.run(*(torch.zeros_like(values[name]) for name in built.inputs))
        for name, output, copy in zip(built.outputs, outputs, kept, strict=True):
            assert torch.equal(output, copy), "an output given away is never written again"
            torch.testing.assert_close(output, values[name], rtol=1e-4, atol=1e-4)
        if built.into is not None:
            places = [torch.empty_like(output) for output in outputs]
            built.into(places, *(values[name] for name in built.inputs))
            for place, output in zip(places, outputs, strict=True):
                torch.testing.assert_close(place, output, msg="`into` writes what `run` returns")
