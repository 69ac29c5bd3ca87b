"""Whatever the user calls a model -> a Program: a module, a name, a factory, a .pt2 or .onnx file.

Must not know what is done with it.
"""

import importlib
import importlib.util
import sys
import zipfile
from collections.abc import Callable
from pathlib import Path
from time import perf_counter
from typing import Any

import torch
from torch import Tensor, nn
from torch.export import ExportedProgram
from torch.nn.utils.rnn import PackedSequence

from gearshift.capture.export import capture_fragment
from gearshift.capture.partial import ITSELF, capture_parts, skeleton
from gearshift.capture.program import Program
from gearshift.capture.weights import unharmed
from gearshift.errors import CaptureError, ModelError, UsageError

Loaded = tuple[Any, Any]
"""A model, and example inputs or None."""


def capture(model: Any, example_inputs: Any, example_kwargs: dict[str, Any]) -> Program:
    """Captured whole, in parts, or not at all: the Program says which and why."""
    start_s = perf_counter()
    if isinstance(model, str | Path):
        model, own_example = load(str(model))
        example_inputs = own_example if example_inputs is None else example_inputs
    if isinstance(model, ExportedProgram):
        example_inputs, example_kwargs = _pt2_example(model, example_inputs, example_kwargs)
        model = _exported_module(model)
    if isinstance(model, Program):
        return model
    if not isinstance(model, nn.Module):
        raise ModelError(f"expected a torch.nn.Module, got {type(model).__name__}")
    args, kwargs = _arguments(example_inputs, example_kwargs)
    return _capture_module(model, args, kwargs, start_s)


def _capture_module(
    model: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any], start_s: float
) -> Program:
    uncaptured: tuple[str, ...] = ()
    training = any(part.training for part in model.modules())
    if not training:
        _run_once(model, args, kwargs)
    try:
        fragments = [capture_fragment("", model, args, kwargs)]
    except CaptureError as error:
        parts, reasons = ([], []) if training else capture_parts(model, args, kwargs)
        itself = [part.name for part in parts] == [ITSELF]
        fragments, uncaptured = parts, () if itself else (str(error), *reasons)
    whole = bool(fragments) and fragments[0].name == ""
    return Program(
        fragments=tuple(fragments),
        eager=model,
        skeleton=None if whole or not fragments else skeleton(model, fragments),
        uncaptured=uncaptured,
        example=(args, kwargs),
        capture_s=perf_counter() - start_s,
    )


def _run_once(model: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
    """If the model does not even run on its example, that is the user's to know first."""
    try:
        with torch.no_grad(), unharmed(model):
            model(*args, **kwargs)
    except Exception as error:
        raise UsageError(f"the model does not run on the example inputs: {_said(error)}") from error


def _said(error: BaseException) -> str:
    """An error of the user's own code, on one line."""
    return f"{type(error).__name__}: {' '.join(str(error).split())[:300]}"


def _arguments(
    example_inputs: Any, example_kwargs: dict[str, Any]
) -> tuple[tuple[Any, ...], dict[str, Any]]:
    if isinstance(example_inputs, Tensor | PackedSequence):
        return (example_inputs,), example_kwargs
    if isinstance(example_inputs, tuple | list):
        return tuple(example_inputs), example_kwargs
    if isinstance(example_inputs, dict):
        return (), {**example_inputs, **example_kwargs}
    if example_inputs is None and example_kwargs:
        return (), example_kwargs
    raise UsageError(
        "example_inputs is needed: a tensor, a tuple of positional arguments, or a dict of keyword"
        f" arguments; got {type(example_inputs).__name__}"
    )


def load(name: str) -> Loaded:
    """MODEL as the command line takes it."""
    from gearshift.zoo import ZOO

    built_in, _, times = name.partition("@")
    if built_in in ZOO:
        return _more_rows(name, ZOO[built_in](), times)
    if name.endswith((".pt2", ".onnx")):
        return _load_file(Path(name))
    if ":" in name:
        source, _, attribute = name.rpartition(":")
        return _from_factory(name, _import(name, source), attribute)
    known = ", ".join(ZOO)
    raise ModelError(
        f"no model {name!r}: expected a built-in ({known}; resnet18@8 for 8 times the rows),"
        " package.module:factory, file.py:factory, a .pt2 or an .onnx file"
    )


def _more_rows(name: str, built: Loaded, times: str) -> Loaded:
    """A built-in model with so many times the rows of its example."""
    if not times:
        return built
    if not times.isdigit() or int(times) < 1:
        raise ModelError(f"{name!r}: after @ comes how many times the rows, 1 or more")
    model, example = built
    return model, tuple(torch.cat([tensor] * int(times)) for tensor in example)


def _load_file(path: Path) -> Loaded:
    if not path.is_file():
        raise ModelError(f"no file {str(path)!r}")
    if path.suffix == ".onnx":
        from gearshift.capture.onnx_file import capture_onnx

        return capture_onnx(path), None
    _refuse_aotinductor(path)
    try:
        return torch.export.load(path), None
    except Exception as error:
        reason = str(error).strip().splitlines()[:1] or [type(error).__name__]
        raise ModelError(f"{str(path)!r} is no torch.export archive: {reason[0][:200]}") from error


def _refuse_aotinductor(path: Path) -> None:
    if not zipfile.is_zipfile(path):
        raise ModelError(f"{str(path)!r} is no torch.export archive: not a zip file")
    with zipfile.ZipFile(path) as archive:
        names = archive.namelist()
    compiled = any("aotinductor" in name and name.endswith((".so", ".cpp", ".o")) for name in names)
    if compiled and not any("models/" in name and name.endswith(".json") for name in names):
        raise ModelError(
            f"{str(path)!r} is an AOTInductor package: compiled code without its graph, which can"
            " be neither cut nor moved. Save the model with torch.export.save instead"
        )


def _pt2_example(
    program: ExportedProgram, example_inputs: Any, example_kwargs: dict[str, Any]
) -> tuple[Any, dict[str, Any]]:
    if example_inputs is not None or example_kwargs:
        return example_inputs, example_kwargs
    if program.example_inputs is None:
        raise UsageError("this archive was saved without example inputs; give example_inputs")
    args, kwargs = program.example_inputs
    return args, kwargs


def _exported_module(program: ExportedProgram) -> nn.Module:
    """What was exported is fixed; yet its flag says training, and .eval() is not allowed."""
    module = program.module()
    for part in module.modules():
        part.training = False
    return module


def _import(name: str, source: str) -> Any:
    if not source.endswith(".py"):
        try:
            return importlib.import_module(source)
        except Exception as error:
            raise ModelError(f"cannot import {name!r}: {_said(error)}") from error
    path = Path(source)
    if not path.is_file():
        raise ModelError(f"no file {source!r}")
    spec = importlib.util.spec_from_file_location(f"gearshift_user_{path.stem}", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    try:
        spec.loader.exec_module(module)
    except Exception as error:
        raise ModelError(f"{source!r} fails on import: {_said(error)}") from error
    return module


def _from_factory(name: str, module: Any, attribute: str) -> Loaded:
    factory: Callable[[], Any] | None = getattr(module, attribute, None)
    if not callable(factory):
        raise ModelError(f"{name!r}: no factory {attribute!r} there")
    try:
        made = factory()
    except (Exception, SystemExit) as error:
        raise ModelError(f"{name!r} raises {_said(error)}") from error
    if isinstance(made, tuple) and len(made) == 2 and isinstance(made[0], nn.Module):
        return made[0].eval(), made[1]
    raise ModelError(
        f"{name!r} gives a {type(made).__name__}; a factory returns (model, example_inputs)"
    )
