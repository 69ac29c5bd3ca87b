"""TorchInductor, compiled in a low-priority child process so that serving never waits for it.

Must not know other backends. The artefact takes the weights as arguments: no second copy.
"""

import pickle
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from gearshift.act.backends.graph_mail import pack
from gearshift.act.backends.protocol import Executable, Order
from gearshift.capture.program import Fragment
from gearshift.errors import CompileError
from gearshift.ir.kinds import RECURRENT
from gearshift.plan.rewrite import UNROLL, Rewrite

CHILD = "gearshift.act.backends.inductor_child"
TIMEOUT_S = 600


class InductorBackend:
    name = "inductor"
    settings = frozenset({"threads", UNROLL})
    any_shape = False
    any_thread = False

    def runnable(self, fragment: Fragment) -> frozenset[str]:
        if fragment.fx is None or shutil.which("g++") is None:
            return frozenset()
        ops = fragment.graph.ops
        return frozenset(op.name for op in ops if op.kind != RECURRENT)  # of those it compiles none

    def rewrites(self, num_cores: int) -> tuple[Rewrite, ...]:
        return (Rewrite(backend=self.name),)

    def held_bytes(self, order: Order) -> int:
        return 0

    def build(self, order: Order) -> Executable:
        assert order.fragment.fx is not None
        assert order.shapes is not None
        cut = order.fragment.fx.cut(order.ops, order.sizes)
        weights = tuple(order.fragment.weights[name].contiguous() for name in cut.weights)
        values = order.fragment.graph.values
        inputs = [(order.shapes[n], getattr(torch, values[n].dtype)) for n in cut.inputs]
        inputs += [(tuple(weight.shape), weight.dtype) for weight in weights]
        artefact = compile_graph(cut.body, inputs, order.threads, order.rewrite.option)

        def run(*given: Tensor) -> Sequence[Tensor]:
            return artefact(*[tensor.contiguous() for tensor in given], *weights)

        return Executable(
            run=run,
            inputs=cut.inputs,
            sizes=cut.sizes,
            outputs=cut.outputs,
            held_bytes=0,
        )


def compile_graph(
    module: torch.fx.GraphModule, inputs: list[Any], threads: int, option: str
) -> Any:
    """For inputs of these shapes and types; called as the graph would be."""
    from torch._inductor.standalone_compile import AOTCompiledArtifact

    with tempfile.TemporaryDirectory(prefix="gearshift-") as folder:
        request, result = Path(folder, "request"), Path(folder, "result")
        request.write_bytes(pickle.dumps((pack(module), inputs, threads, option)))
        command = [sys.executable, "-m", CHILD, str(request), str(result)]
        try:
            child = subprocess.run(command, capture_output=True, text=True, timeout=TIMEOUT_S)
        except subprocess.TimeoutExpired:
            raise CompileError(f"inductor took more than {TIMEOUT_S} s") from None
        if child.returncode != 0 or not result.exists():
            raise CompileError(f"inductor: {_reason(child)}")
        return AOTCompiledArtifact.load(path=str(result), format="binary")


def _reason(child: subprocess.CompletedProcess[str]) -> str:
    """The line that names the error; Inductor prints the failing op's arguments after it."""
    named = [line for line in child.stderr.splitlines() if "Error" in line or "Exception" in line]
    return named[-1][:300] if named else f"exit code {child.returncode}"
