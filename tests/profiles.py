"""Regions and kernels as they might have been recorded, for those who learn from them."""

from gearshift.sim.rewrite_profiles import RegionProfile
from gearshift.sim.unroll_profiles import KernelProfile

BUILD_S = {"eager": 0.0, "fusion": 20.0}


def region(model: str = "one", *, memory_bound: bool = False, size: float = 1.0) -> RegionProfile:
    """Fast by OpenVINO if arithmetic takes long, in tiles if memory does; by ONNX Runtime a little
    faster than as it comes, whatever it is."""
    now_s = 1e-3 * size
    shares = {
        "eager": 1.0,
        "onnxruntime": 0.8,
        "openvino": 1.2 if memory_bound else 0.4,
        "fusion": 0.9,
        "tiles": 0.4 if memory_bound else 1.2,
        "buffers": 0.85,
    }
    little, much = 0.05 * now_s, 0.3 * now_s
    return RegionProfile(
        model=model,
        name=f"{model} {'memory' if memory_bound else 'compute'} {size:g}",
        kind="linear",
        num_ops=8,
        flops=(1e6 if memory_bound else 1e8) * size,
        moved_bytes=(1e7 if memory_bound else 1e6) * size,
        set_bytes=(5e6 if memory_bound else 5e5) * size,
        read_bytes=1e5 * size,
        made_bytes=1e5 * size,
        compute_s=little if memory_bound else much,
        memory_s=much if memory_bound else little,
        seconds={name: share * now_s for name, share in shares.items()},
        build_s={name: BUILD_S.get(name, 0.1) for name in shares},
    )


def regions(*models: str) -> list[RegionProfile]:
    """Six of each model, half of them bound by memory."""
    return [
        region(model, memory_bound=memory_bound, size=size)
        for model in models
        for size in (0.5, 1.0, 3.0)
        for memory_bound in (False, True)
    ]


KERNELS = {"nimble": (1.0, 1.0), "steady": (4.0, 0.8)}
"""How many times as long a call takes, and a step."""


def kernel(
    kind: str, hidden_size: int, rows: int, threads: int, name: str = "nimble"
) -> KernelProfile:
    """A step takes four times as long with twice the units, and a little longer with every row."""
    call, step = KERNELS[name]
    return KernelProfile(
        kind=kind,
        input_size=hidden_size,
        hidden_size=hidden_size,
        rows=rows,
        kernel=name,
        threads=threads,
        call_s=2e-5 * call * threads,
        step_s=1e-6 * step * (hidden_size / 32) ** 2 * (1 + rows / 8) / threads**0.5,
    )


def kernels() -> list[KernelProfile]:
    """Of all kinds, at the ends of the sizes."""
    return [
        kernel(kind, hidden_size, rows, threads, name)
        for kind in ("lstm", "gru")
        for hidden_size in (32, 1024)
        for rows in (1, 8, 64)
        for threads in (1, 2)
        for name in KERNELS
    ]
