"""Backends: how a region is compiled. One protocol, one file each; the table of those here.

A backend of your own: write a class as in `protocol.py`, then `register(YourBackend())`.
"""

from gearshift.act.backends.check import check_backend
from gearshift.act.backends.eager import EagerBackend
from gearshift.act.backends.inductor import InductorBackend
from gearshift.act.backends.null import NullBackend
from gearshift.act.backends.onnxruntime import OnnxRuntimeBackend
from gearshift.act.backends.openvino import OpenVinoBackend
from gearshift.act.backends.protocol import Backend, Executable, Order

__all__ = [
    "BACKENDS",
    "Backend",
    "Executable",
    "NullBackend",
    "Order",
    "check_backend",
    "register",
]

BACKENDS: dict[str, Backend] = {}


def register(backend: Backend) -> None:
    BACKENDS[backend.name] = backend


for _backend in (EagerBackend(), InductorBackend(), OnnxRuntimeBackend(), OpenVinoBackend()):
    register(_backend)
