"""A module -> a Fragment, by torch.export: tensors in, tensors out, everything else a constant.

Must not know what a fragment is used for.
"""

import inspect
import logging
import traceback
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from enum import Enum
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.export import Dim, ExportedProgram
from torch.utils import _pytree as pytree

from gearshift.capture import fx, onnx_export
from gearshift.capture.calls import Leaf, Sizes, call_form, canonical, leaf_names
from gearshift.capture.lookups import find_lookups
from gearshift.capture.program import Expression, Fragment, Ref
from gearshift.capture.recurrent import kept_whole
from gearshift.capture.weights import Slot, WeightWatch, eval_twin, unharmed
from gearshift.errors import CaptureError

WIDENED_DIMS = (0, 1)
LIBRARIES = (str(Path(torch.__file__).parent), str(Path(__file__).parents[1]))


TENSOR = object()


class Seen:
    """What the module returned when it was traced. Not a list: export would put that back."""

    spec: pytree.TreeSpec
    results: list[Any]


class Flat(nn.Module):
    """The module with tensors for arguments and tensors for results; the rest goes to `seen`."""

    def __init__(self, module: nn.Module, spec: pytree.TreeSpec, leaves: Sequence[Any]) -> None:
        super().__init__()
        self.module = module
        self.spec = spec
        self.constants = [None if isinstance(leaf, Tensor) else leaf for leaf in leaves]
        self.is_tensor = [isinstance(leaf, Tensor) for leaf in leaves]
        self.seen = Seen()

    def forward(self, *tensors: Tensor) -> tuple[Tensor, ...]:
        given = iter(tensors)
        pairs = zip(self.is_tensor, self.constants, strict=True)
        leaves = [next(given) if is_tensor else constant for is_tensor, constant in pairs]
        args, kwargs = pytree.tree_unflatten(leaves, self.spec)
        held = [(part._buffers, dict(part._buffers)) for part in self.module.modules()]
        results, spec = pytree.tree_flatten(self.module(*args, **kwargs))
        for holder, before in held:
            for name, buffer in before.items():
                if holder.get(name) is not buffer:
                    raise CaptureError(f"forward puts another tensor in the buffer {name}'s place")
        self.seen.spec = spec
        self.seen.results = [TENSOR if isinstance(r, Tensor) else _plain(r) for r in results]
        return tuple(r for r in results if isinstance(r, Tensor))


def _plain(result: Any) -> Any:
    if isinstance(result, torch.SymInt):
        return Expression(text=str(result.node.expr))
    if isinstance(result, torch.SymFloat | torch.SymBool):
        raise CaptureError(f"returns {result!r}, a number computed from sizes")
    if not isinstance(result, CONSTANTS):
        raise CaptureError(f"returns a {type(result).__name__}, which may hold tensors unseen")
    return result


def capture_fragment(
    name: str, module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> Fragment:
    """Raises CaptureError, with line and reason, if the module cannot be captured whole."""
    _refuse_unfit(module)
    signature = inspect.signature(module.forward)
    form = call_form(signature, args, kwargs)
    example, _ = pytree.tree_flatten(canonical(signature, args, kwargs))
    _refuse_unfit_inputs(example)
    flat = Flat(module, form.spec, example)
    exported = _export(flat, _distinct([leaf for leaf in example if isinstance(leaf, Tensor)]))
    _refuse_stateful(module, args, kwargs)
    _refuse_random(exported)
    with _quiet():
        exported, onnx, notes = onnx_export.convert(exported)
    _refuse_mutation(exported)
    prefix = f"{name}/" if name else ""
    captured = fx.read(exported, prefix=prefix, is_attribute=partial(_is_attribute, flat))
    slots = _slots(flat, captured.weights)
    lookups = find_lookups(captured)
    names = leaf_names(signature, args, kwargs)
    leaves = _leaves(names, example, captured.graph.inputs)
    fragment = Fragment(
        name=name,
        eager=module,
        graph=captured.graph,
        form=form,
        leaves=leaves,
        sizes=_sizes(exported, leaves),
        size_values=captured.size_values,
        inputs=tuple(i for i, leaf in enumerate(leaves) if leaf.dtype is not None),
        outputs=_outputs(flat.seen.results, captured.outputs),
        out_spec=flat.seen.spec,
        slots=slots,
        constants=captured.constants,
        watch=WeightWatch(list(slots.values()), list(module.modules())),
        example=tuple(example),
        reference=captured.reference,
        fx=captured,
        lookups=lookups,
        onnx=None if onnx is None else onnx.attach(captured, lookups),
        notes=tuple(notes),
    )
    fragment.size_numbers(fragment.sizes.bind(example))  # raises if one cannot be computed
    return fragment


def _distinct(tensors: list[Tensor]) -> list[Tensor]:
    """A tensor given twice would be taken for one input."""
    seen: set[int] = set()
    distinct = []
    for tensor in tensors:
        distinct.append(tensor.clone() if id(tensor) in seen else tensor)
        seen.add(id(tensor))
    return distinct


def _refuse_stateful(module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
    """Runs a twin: what it assigns to itself, a captured graph would not."""
    twins: dict[int, nn.Module] = {}
    twin = eval_twin(module, twins)
    given = pytree.tree_map(lambda v: v.clone() if isinstance(v, Tensor) else v, (args, kwargs))
    with torch.no_grad(), unharmed(module):
        twin(*given[0], **given[1])
    for path, part in module.named_modules():
        after = twins[id(part)].__dict__
        for key in {*part.__dict__, *after} - OWN_STATE:
            before, now = part.__dict__.get(key), after.get(key)
            if before is not now and isinstance(now, PLAIN_STATE) and before != now:
                where = f"module {path}" if path else "the model"
                raise CaptureError(f"forward assigns to self.{key}", where)


OWN_STATE = frozenset({"training", "_modules"})
PLAIN_STATE = (bool, int, float, str, bytes, type(None))


def _refuse_unfit(module: nn.Module) -> None:
    for path, part in module.named_modules():
        where = f"module {path}" if path else "the model"
        if part.training:
            raise CaptureError("is in training mode; call .eval() first", where)
        hooks = (*part._forward_hooks.values(), *part._forward_pre_hooks.values())
        if not all(getattr(hook, "__module__", "").startswith("torch.") for hook in hooks):
            raise CaptureError("has forward hooks, which a captured graph would not call", where)


def _refuse_unfit_inputs(example: Sequence[Any]) -> None:
    for leaf in example:
        if not isinstance(leaf, Tensor):
            if not isinstance(leaf, CONSTANTS):
                raise CaptureError(f"takes a {type(leaf).__name__}, which may hold tensors unseen")
            continue
        if leaf.layout != torch.strided or leaf.is_quantized or type(leaf) not in PLAIN:
            raise CaptureError(f"an example input is a {type(leaf).__name__} of {leaf.layout}")
        if leaf.device.type != "cpu":
            raise CaptureError(
                f"an example input is on {leaf.device}; engines move it, keep it on cpu"
            )


READS_A_NUMBER = (torch.ops.aten._local_scalar_dense.default, torch.ops.aten.item.default)
PLAIN = (Tensor, nn.Parameter, nn.Buffer)
CONSTANTS = (int, float, complex, str, bytes, Enum, torch.dtype, torch.device, type(None))


def _export(flat: Flat, tensors: list[Tensor]) -> ExportedProgram:
    """With every size free if that works, else with the sizes of the example."""
    wide = _widened(flat, tensors)
    free = {"tensors": tuple(dict.fromkeys(range(t.dim()), Dim.AUTO) for t in wide)}
    try:
        return _try_export(flat, wide, free)
    except CaptureError:
        raise
    except Exception as error:
        try:
            return _try_export(flat, tensors, None)
        except Exception:
            raise CaptureError(_reason(error), _user_line(error)) from error


def _try_export(flat: Flat, tensors: list[Tensor], sizes: Any) -> ExportedProgram:
    # Under no_grad torch drops a `contiguous` that was needed, and fails later.
    modes = (kept_whole(), torch.inference_mode(False), torch.enable_grad())
    with _quiet(), modes[0], modes[1], modes[2], warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        exported = torch.export.export(flat, tuple(tensors), dynamic_shapes=sizes, strict=False)
    for text in (str(warning.message) for warning in said):
        if ASSIGNED in text and FLAT_WEIGHTS not in text:
            raise CaptureError(f"forward assigns to the module: {text.split(ASSIGNED)[0].strip()}")
    return exported


EXPORTERS = ("torch", "onnxscript", "onnx_ir")
ASSIGNED = "were assigned during export"
FLAT_WEIGHTS = "_flat_weights"
"""Recurrent layers of torch's own assign these, to no effect."""


def _widened(flat: Flat, tensors: list[Tensor]) -> list[Tensor]:
    """Sizes of 1 in the leading dimensions made 2: export takes a 1 for a constant."""
    for dims in (WIDENED_DIMS, WIDENED_DIMS[:1]):
        wide = [_widen(tensor, dims) for tensor in tensors]
        if all(a is b for a, b in zip(wide, tensors, strict=True)):
            continue
        try:
            with torch.no_grad(), unharmed(flat):
                flat(*wide)
        except Exception:  # the model's own word on whether that size is free
            continue
        return wide
    return tensors


def _widen(tensor: Tensor, dims: Sequence[int]) -> Tensor:
    for dim in dims:
        if dim < tensor.dim() and tensor.shape[dim] == 1:
            tensor = torch.cat([tensor, tensor], dim)
    return tensor


def _refuse_mutation(exported: ExportedProgram) -> None:
    """Asked of the decomposed program: only there in-place ops show as what they change."""
    signature = exported.graph_signature
    if signature.buffers_to_mutate:
        buffer = next(iter(signature.buffers_to_mutate.values()))
        raise CaptureError(f"forward changes the buffer {buffer.removeprefix('module.')}")
    if getattr(signature, "user_inputs_to_mutate", None):
        raise CaptureError("forward changes one of its inputs in place")


def _refuse_random(exported: ExportedProgram) -> None:
    for node in exported.graph.nodes:
        if _is_random(node):
            raise CaptureError(f"{node.target} is random", fx.node_line(node))
        if node.target in READS_A_NUMBER:
            raise CaptureError("a number is read out of a tensor (.item())", fx.node_line(node))


def _is_random(node: torch.fx.Node) -> bool:
    """By torch's own tag, unless its dropout is switched off."""
    if torch.Tag.nondeterministic_seeded not in getattr(node.target, "tags", ()):
        return False
    target: Any = node.target
    names = [argument.name for argument in target._schema.arguments]
    given = {**dict(zip(names, node.args, strict=False)), **node.kwargs}
    if "dropout_p" in names:
        return bool(given.get("dropout_p", 0.0))
    return given.get("train", True) is not False


def _user_line(error: BaseException) -> str | None:
    """The innermost frame outside torch and this package."""
    frames = traceback.extract_tb(error.__traceback__)
    for frame in reversed(frames):
        if (
            not frame.filename.startswith((*LIBRARIES, "<"))
            and "/lib/python3" not in frame.filename
        ):
            return f"{frame.filename}:{frame.lineno}"
    return None


def _reason(error: Exception) -> str:
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    first = lines[0] if lines else "no message"
    return f"{type(error).__name__}: {first[:300]}"


def _leaves(
    names: Sequence[str], example: Sequence[Any], inputs: Sequence[Any]
) -> tuple[Leaf, ...]:
    values = iter(inputs)
    leaves = []
    for name, given in zip(names, example, strict=True):
        if isinstance(given, Tensor):
            leaves.append(Leaf(name=name, dtype=given.dtype, shape=next(values).shape))
        else:
            leaves.append(Leaf(name=name, constant=given))
    return tuple(leaves)


def _sizes(exported: ExportedProgram, leaves: Sequence[Leaf]) -> Sizes:
    reads: dict[str, tuple[int, int]] = {}
    for index, leaf in enumerate(leaves):
        for dim, size in enumerate(leaf.shape):
            if isinstance(size, str) and size.isidentifier():
                reads.setdefault(size, (index, dim))
    ranges = {
        str(symbol): (_bound(interval.lower, 0), _bound(interval.upper, 2**63))
        for symbol, interval in exported.range_constraints.items()
    }
    guards = tuple(getattr(exported, "_guards_code", None) or ())
    return Sizes(reads=reads, ranges=ranges, guards=guards)


def _bound(limit: Any, endless: int) -> int:
    return int(limit) if getattr(limit, "is_Integer", False) else endless


def _outputs(results: Sequence[Any], values: Sequence[str]) -> tuple[Any, ...]:
    names = iter(values)
    return tuple(Ref(next(names)) if result is TENSOR else result for result in results)


def _slots(flat: Flat, weights: Mapping[str, str]) -> dict[str, Slot]:
    """For each weight the dictionary and key where the module keeps it."""
    slots = {}
    for value, target in weights.items():
        path, _, key = target.rpartition(".")
        owner = flat.get_submodule(path)
        holders = (owner._parameters, owner._buffers, owner.__dict__)
        slots[value] = (next(holder for holder in holders if key in holder), key)
    return slots


def _is_attribute(flat: Flat, target: str) -> bool:
    """Whether a constant of the export is a tensor some module has as a plain attribute."""
    path, _, key = target.rpartition(".")
    try:
        owner = flat.get_submodule(path)
    except AttributeError:
        return False
    return isinstance(owner.__dict__.get(key), Tensor)


@contextmanager
def _quiet() -> Iterator[None]:
    """Exporters warn about things no user of ours can act on; what fails is raised anyway."""
    from torch.export import _trace  # seconds, which nobody waits for who exports nothing

    loggers = [logging.getLogger(name) for name in EXPORTERS]
    known = list(logging.root.manager.loggerDict)
    loggers += [logging.getLogger(name) for name in known if name.startswith(EXPORTERS)]
    before = [(logger, logger.disabled, logger.level) for logger in loggers]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for logger in loggers:
            logger.disabled = True
            logger.setLevel(logging.CRITICAL + 1)
        _trace.__dict__["print"] = lambda *_, **__: None  # of the whole graph, before it raises
        try:
            yield
        finally:
            _trace.__dict__.pop("print", None)
            for logger, disabled, level in before:
                logger.disabled = disabled
                logger.setLevel(level)
