"""A plan as something that can be called: the model itself, or its fragments built and verified.

Must not know which plan is in force.
"""

import inspect
from collections.abc import Callable, Sequence
from typing import Any

from gearshift.act.compile import Variant, fragment_regions
from gearshift.act.executor import (
    EagerExecutor,
    LiveCheck,
    PartialExecutor,
    WholeExecutor,
    key_of,
    outer_key,
)
from gearshift.act.labels import Key, Labels
from gearshift.act.openmp import sparing
from gearshift.act.prepared import Prepared
from gearshift.act.tally import Tallies
from gearshift.act.variants import Variants, Workshop, explain_refusal
from gearshift.act.verify import verify_parts
from gearshift.capture.program import Program
from gearshift.errors import PlanError
from gearshift.plan.plan import Plan, whole

Broken = Callable[[Plan, tuple[Any, ...], dict[str, Any], Exception], Any]


def eager_executor(
    program: Program, tallies: Tallies, labels: Labels, others: Callable[[], int]
) -> EagerExecutor:
    """The user's own model, on so many threads fewer as others want cores; what it refuses is
    explained in terms of its arguments."""
    captured = program.by_name.get("")

    def refuse(args: tuple[Any, ...], kwargs: dict[str, Any], error: Exception) -> Any:
        return captured and explain_refusal(captured, args, kwargs, error)

    def key(args: tuple[Any, ...], kwargs: dict[str, Any]) -> Key | None:
        if captured is None:
            return outer_key(args, kwargs)
        leaves = captured.form.leaves(args, kwargs)
        return None if leaves is None else key_of(leaves)

    forward = getattr(program.eager, "forward", program.eager)
    names = list(inspect.signature(forward).parameters)
    outside = tallies if captured is None else None
    eager = sparing(program.eager, others)
    return EagerExecutor(whole(program.graph), eager, refuse, names, key, labels, outside)


def assemble(
    program: Program,
    plan: Plan,
    shop: Workshop,
    audit: LiveCheck,
    broken: Broken,
    reuse: Sequence[Variant],
) -> Prepared:
    """Every fragment's build for the example's signature is made and verified."""
    built = []
    for fragment in program.fragments:
        variants = Variants(fragment, fragment_regions(plan, fragment), shop)
        key = key_of(fragment.example)
        if key is None:
            raise PlanError("the example inputs need gradients: only the eager plan can serve")
        variants.build_own(fragment.example, key, reuse)
        built.append(variants)
    executors = {v.fragment.name: v.executor for v in built}
    if program.skeleton is None:
        whole_model = WholeExecutor(plan, executors[""], audit, shop.labels)
        return Prepared(executor=whole_model, variants=tuple(built))
    in_parts = PartialExecutor(
        plan, executors, program.skeleton, shop.tallies, audit, broken, shop.labels
    )
    verify_parts(program.eager, in_parts.shell, program.example, shop.tolerance)
    return Prepared(executor=in_parts, variants=tuple(built))
