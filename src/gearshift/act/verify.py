"""Compares what a plan gives with what the model gives. A plan that differs never serves.

Must not know when it is asked.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.utils import _pytree as pytree

from gearshift.act.backends import Executable
from gearshift.act.compile import Variant, boundary_values
from gearshift.act.exam import Exam
from gearshift.act.executor import unflattener
from gearshift.act.samples import Question
from gearshift.capture.calls import own_copy
from gearshift.capture.program import Fragment
from gearshift.errors import VerifyError
from gearshift.plan.plan import Region


@dataclass(frozen=True, slots=True, kw_only=True)
class Tolerance:
    """How far off, relative to the output's largest magnitude. Whole numbers: not at all."""

    single: float = 1e-4
    double: float = 1e-8
    half: float = 1e-2
    """float16 and bfloat16, whose own rounding is already this coarse."""
    region: float = 0.1
    """A region on its own, be it the whole model, is held to this share of the above."""

    @property
    def anything(self) -> bool:
        return self.single == float("inf")

    def of(self, dtype: torch.dtype) -> float:
        if dtype in (torch.float64, torch.complex128):
            return self.double
        return self.half if dtype in (torch.float16, torch.bfloat16) else self.single


def error_between(expected: Any, got: Any) -> float:
    """Relative to the largest finite magnitude expected; infinite if they cannot be compared."""
    if not isinstance(expected, Tensor) or not isinstance(got, Tensor):
        return 0.0 if type(expected) is type(got) and expected == got else float("inf")
    if expected.shape != got.shape or expected.dtype != got.dtype:
        return float("inf")
    if expected.numel() == 0:
        return 0.0
    if not (expected.is_floating_point() or expected.is_complex()):
        return 0.0 if torch.equal(expected, got) else float("inf")
    return _float_error(expected.detach(), got.detach())


def _float_error(expected: Tensor, got: Tensor) -> float:
    finite = expected.isfinite()
    if not torch.equal(finite, got.isfinite()):
        return float("inf")
    if not finite.all():
        odd = ~finite
        if not torch.equal(expected[odd].nan_to_num(), got[odd].nan_to_num()):
            return float("inf")
        if not torch.equal(expected[odd].isnan(), got[odd].isnan()):
            return float("inf")
        expected, got = expected[finite], got[finite]
    if expected.numel() == 0:
        return 0.0
    worst = (expected - got).abs().max().item()
    largest = expected.abs().max().item()
    return float(worst / largest if largest > 0 else worst)


def compare(expected: Any, got: Any, tolerance: Tolerance, what: str, share: float = 1.0) -> float:
    """The worst error over all leaves; raises VerifyError where one is too far off."""
    wants, spec = pytree.tree_flatten(expected)
    haves, have_spec = pytree.tree_flatten(got)
    if spec != have_spec:
        raise VerifyError(f"{what}: the result is built otherwise than the model's")
    worst = 0.0
    for index, (want, have) in enumerate(zip(wants, haves, strict=True)):
        error = error_between(want, have)
        allowed = tolerance.of(want.dtype) * share if isinstance(want, Tensor) else 0.0
        if not error <= allowed:
            raise VerifyError(
                f"{what}: output {index} differs from the model's by {error:.2g} of its largest"
                f" magnitude; {allowed:.2g} is allowed"
            )
        worst = max(worst, error)
    return worst


def verify_parts(
    eager: Callable[..., Any],
    shell: Callable[..., Any],
    example: tuple[tuple[Any, ...], dict[str, Any]],
    tolerance: Tolerance,
) -> None:
    """The model's own code around stand-ins for its parts, on the example: code that asks what its
    submodules are may do something else then. A model that contradicts itself is not compared."""

    def call(model: Callable[..., Any]) -> list[Tensor]:
        args, kwargs = own_copy(example)
        with torch.no_grad():
            leaves = pytree.tree_leaves(model(*args, **kwargs))
        return [leaf for leaf in leaves if isinstance(leaf, Tensor)]

    expected = call(eager)
    try:
        compare(expected, call(eager), tolerance, "the model against itself")
    except VerifyError:
        return
    try:
        got = call(shell)
    except Exception as error:
        reason = f"{type(error).__name__}: {' '.join(str(error).split())[:200]}"
        raise VerifyError(f"the model's own code fails around captured parts: {reason}") from error
    compare(expected, got, tolerance, "the model's own code around captured parts")


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    worst_error: float
    finite_only: bool
    """NaN or Inf in the inputs come out otherwise than from the model."""


def verify(
    variant: Variant, exam: Exam, tolerance: Tolerance, finite_only: bool | None = None
) -> Verdict:
    """Random inputs through the model, each region, and all of them. `finite_only` is known if the
    same regions by the same backends have been asked everything: how many threads they run on
    changes nothing about the rest."""
    worst = 0.0
    alone = len(variant.regions) == 1
    share = tolerance.region if alone else 1.0
    for asked in exam.usual:
        if not alone:
            worst = max(worst, _verify_regions(variant, asked.leaves, tolerance))
        got = run(variant, asked.leaves)
        worst = max(worst, compare(asked.answer, got, tolerance, "the plan", share))
    if finite_only is not None:
        return Verdict(worst_error=worst, finite_only=finite_only)
    for asked in exam.small:
        got = run(variant, asked.leaves)
        compare(asked.answer, got, tolerance, "the plan, on small numbers")
    if not tolerance.anything and not all(_finite_alike(variant, q) for q in exam.extreme):
        raise VerifyError("the plan: NaN or Inf come out otherwise than from the model")
    alike = (
        variant.finite_only
        or tolerance.anything
        or all(_finite_alike(variant, asked) for asked in exam.odd)
    )
    return Verdict(worst_error=worst, finite_only=not alike)


def _finite_alike(variant: Variant, asked: Question) -> bool:
    """Whether the same values come out as NaN and as Inf; the others do not count."""
    wants = pytree.tree_leaves(asked.answer)
    haves = pytree.tree_leaves(run(variant, asked.leaves))
    pairs = [(w, h) for w, h in zip(wants, haves, strict=True) if isinstance(w, Tensor)]
    floats = [(w, h) for w, h in pairs if w.is_floating_point()]
    return all(
        torch.equal(w.isnan(), h.isnan()) and torch.equal(w.isinf(), h.isinf()) for w, h in floats
    )


def run(variant: Variant, leaves: Sequence[Any]) -> Any:
    steps = variant.steps(leaves)
    values = [*leaves, *steps.rest]
    for step in steps.run:
        step(values)
    return unflattener(variant.fragment.out_spec)([values[i] for i in steps.outputs])


def known_values(
    fragment: Fragment, regions: Sequence[Region], leaves: Sequence[Any]
) -> dict[str, Any]:
    """What the model itself has at every boundary of these regions, and all sizes."""
    names = boundary_values(fragment, regions)
    values: dict[str, Any] = {}
    values |= fragment.reference(leaves, names, fragment.weights)
    values |= fragment.size_numbers(fragment.sizes.bind(leaves))
    return values


def feeds(built: Executable, values: Mapping[str, Any]) -> tuple[list[Any], list[Any]]:
    """What goes into a region, and what should come out."""
    inputs = [values[name] for name in (*built.inputs, *built.sizes)]
    return inputs, [values[name] for name in built.outputs]


def _verify_regions(variant: Variant, leaves: Sequence[Any], tolerance: Tolerance) -> float:
    fragment, worst = variant.fragment, 0.0
    values = known_values(fragment, variant.regions, leaves)
    for region, built, engine in zip(
        variant.regions, variant.executables, variant.engines, strict=True
    ):
        inputs, expected = feeds(built, values)
        got = engine.start(built.run, inputs).result()
        what = f"region {region.name} ({region.setting} on {region.engine})"
        worst = max(worst, compare(expected, list(got), tolerance, what, tolerance.region))
    return worst
