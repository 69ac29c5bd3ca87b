"""Run as a script: compiles one region with Inductor and saves the artefact.

Reads only what its parent wrote into their own folder; ends when its parent ends.
"""

import ctypes
import os
import pickle
import signal
import sys
from pathlib import Path
from typing import Any

PR_SET_PDEATHSIG = 1
SHORT = 64
"""Reductions over fewer than so many are written out, if that is asked for."""


def main(request: str, result: str) -> None:
    os.nice(19)
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    os.environ["TORCHINDUCTOR_COMPILE_THREADS"] = "1"
    import torch
    import torch._inductor.config
    from torch._subclasses import FakeTensorMode
    from torch.fx.experimental.symbolic_shapes import ShapeEnv

    import gearshift.capture.recurrent  # noqa: F401 - its ops may be in the graph
    from gearshift.act.backends.graph_mail import unpack
    from gearshift.plan.rewrite import UNROLL

    nodes, inputs, threads, option = pickle.loads(Path(request).read_bytes())
    torch.set_num_threads(threads)
    torch._inductor.config.cpp.threads = threads
    if option == UNROLL:
        torch._inductor.config.unroll_reductions_threshold = SHORT
        torch._inductor.config.cpp.enable_floating_point_contract_flag = "fast"
    mode = FakeTensorMode(shape_env=ShapeEnv())
    real = [torch.empty(shape, dtype=dtype) for shape, dtype in inputs]
    examples: list[Any] = [mode.from_tensor(tensor, static_shapes=True) for tensor in real]
    with torch.no_grad():
        artefact = torch._inductor.standalone_compile(
            unpack(nodes), examples, aot=True, fake_mode=mode, dynamic_shapes="from_example_inputs"
        )
    artefact.save(path=result, format="binary")


if __name__ == "__main__":
    main(*sys.argv[1:])
