"""A fragment's builds for the signatures that come: which exist, which are worth making.

Runs beside the hot path: only calls whose signature is not yet known, or that failed, come here.
"""

import logging
from collections import Counter
from collections.abc import Callable, Collection, Sequence
from contextlib import AbstractContextManager, suppress
from dataclasses import dataclass, field, replace
from time import perf_counter
from typing import Any

import torch

from gearshift.act.background import Background
from gearshift.act.compile import (
    OpenEngine,
    Variant,
    any_shape_regions,
    build_variant,
    regions_at,
    reusable,
)
from gearshift.act.exam import Exams
from gearshift.act.executor import FragmentExecutor
from gearshift.act.labels import Key, Labels
from gearshift.act.openmp import sparing
from gearshift.act.samples import other_sizes
from gearshift.act.steps import Unfit
from gearshift.act.tally import Tallies
from gearshift.act.verify import Tolerance, run, verify
from gearshift.capture.calls import refuse_absurd, why_unlike
from gearshift.capture.program import Fragment
from gearshift.errors import CompileError, EngineError, GearshiftError, InputError
from gearshift.plan.plan import Region

log = logging.getLogger("gearshift")
MAX_BUILDS = 4
"""Beside the one for the example: one for any shape, and some for single signatures."""
MAX_REFUSED = 16
"""With more sizes that cannot be built, none is tried any more."""
MAX_KNOWN = 1024
"""Signatures remembered; with more, all but those with a build of their own are forgotten."""
CALLS_BEFORE_BUILD = 3
ANY_SHAPE = "any shape"
TakeRoom = Callable[
    [Fragment, Sequence[Region], Collection[Region], Sequence[Any]], AbstractContextManager[None]
]


@dataclass(frozen=True, slots=True, kw_only=True)
class Workshop:
    """What building needs from outside; shared by all plans of a runtime."""

    open_engine: OpenEngine
    background: Background
    tolerance: Tolerance
    tallies: Tallies
    room: TakeRoom
    """Held while regions, but for those ready, are built for calls with these leaves; raises
    MemoryLimitError if they would not fit."""
    count: Callable[["Variants"], None]
    """Told of all there are, since what they hold counts."""
    weights_changed: Callable[[], None]
    failed: Callable[["Variants", Region, Exception], None]
    labels: Labels
    others: Callable[[], int]
    """How many want a core beside the calls."""
    exams: Exams = field(default_factory=Exams)


class Variants:
    """One fragment under one plan."""

    def __init__(self, fragment: Fragment, regions: tuple[Region, ...], shop: Workshop) -> None:
        self.fragment, self.regions, self.shop = fragment, regions, shop
        self.executor = FragmentExecutor(fragment, regions, self)
        self.built: list[Variant] = []
        self.worst_error = 0.0
        self.refusals: dict[Any, str] = {}
        self._any_shape: Variant | None = None
        self._asked: set[Any] = set()
        self._retired = False
        self._seen: Counter[Key] = Counter()
        self._own: dict[Key, Any] = {}
        shop.count(self)

    def build_own(self, leaves: Sequence[Any], key: Key, reuse: Sequence[Variant] = ()) -> None:
        """A build for exactly this signature; it serves from here on."""
        if not self.shop.exams.of(self.fragment, leaves).usual:
            raise InputError("the model refuses these inputs")
        open_engine = self.shop.open_engine
        regions = regions_at(self.fragment, self.regions, leaves)
        ready = reusable(self.fragment, leaves, reuse)
        with self.shop.room(self.fragment, regions, ready.keys(), leaves):
            variant = build_variant(self.fragment, regions, leaves, open_engine, ready)
            variant = self._admit(variant, leaves)
        self._own[key] = self.executor.table[key] = variant.steps(leaves, self.shop.others)

    def _build_any_shape(self) -> None:
        """A build for all signatures, checked at two of them."""
        regions = any_shape_regions(self.regions)
        leaves = other_sizes(self.fragment)
        if leaves is None:
            raise CompileError("the model runs at no second size to verify at")
        with self.shop.room(self.fragment, regions, (), leaves):
            variant = build_variant(self.fragment, regions, None, self.shop.open_engine)
            variant = self._admit(variant, self.fragment.example)
            self._any_shape = self._admit(variant, leaves)

    def _admit(self, variant: Variant, leaves: Sequence[Any]) -> Variant:
        try:
            exams = self.shop.exams
            exam = exams.of(self.fragment, leaves)
            parts = tuple(
                (r.ops, r.rewrite.backend, r.rewrite.option, r.split, r.unroll)
                for r in variant.regions
            )
            kind = (variant.signature, parts)
            verdict = verify(variant, exam, self.shop.tolerance, exams.passed(exam, kind))
            exams.note(exam, kind, verdict.finite_only)
            for built in variant.executables:
                if (shares := getattr(built.run, "shares", None)) is not None:
                    shares.rehearsed()
        except EngineError as failure:  # what ran on it failed, or it did
            if isinstance(failure.__cause__, GearshiftError | None):
                raise
            raise CompileError(f"fails when run: {failure}") from failure
        except GearshiftError:
            raise
        except Exception as failure:
            reason = " ".join(str(failure).split())[:300]
            raise CompileError(f"fails when run: {type(failure).__name__}: {reason}") from failure
        self.worst_error = max(self.worst_error, verdict.worst_error)
        admitted = replace(variant, finite_only=variant.finite_only or verdict.finite_only)
        self.built = [*(v for v in self.built if v.executables != admitted.executables), admitted]
        return admitted

    def retire(self) -> None:
        """No longer in force: nothing more is built, and calls of unknown sizes run eagerly."""
        self._retired = True

    def revive(self) -> None:
        """In force again."""
        self._retired = False

    def release(self) -> None:
        """Frees what was built."""
        self.retire()
        self.executor.table.clear()
        self._own.clear()
        self.built.clear()
        self._any_shape = None

    def unknown(
        self,
        executor: FragmentExecutor,
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
        leaves: Sequence[Any] | None,
        key: Key | None,
    ) -> Any:
        refuse_absurd(leaves, [leaf.name for leaf in self.fragment.leaves])
        if not self.fragment.watch.unchanged():
            if not self.fragment.watch.training():
                self.shop.weights_changed()
        elif key is not None and leaves is not None and not self._retired:
            variant = self._find(key, leaves)
            if variant is not None:
                with suppress(Unfit):
                    return run(variant, leaves)
        return self._eager(args, kwargs)

    def failed(
        self,
        executor: FragmentExecutor,
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
        region: int,
        error: Exception,
    ) -> Any:
        """A captured graph is pure: the call is run again, by the model itself. If that refuses it,
        too, or the inputs were of a kind only the model is right for, nobody else is at fault."""
        result = self._eager(args, kwargs)
        if not isinstance(error, Unfit):
            self.shop.failed(self, self.regions[region], error)
        return result

    def _eager(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        start_s = perf_counter()
        try:
            return sparing(self.fragment.eager, self.shop.others)(*args, **kwargs)
        except Exception as error:
            explained = explain_refusal(self.fragment, args, kwargs, error)
            if explained is None:
                raise
            raise explained from error
        finally:
            self.shop.tallies.mine().outside_s += perf_counter() - start_s

    def _find(self, key: Key, leaves: Sequence[Any]) -> Variant | None:
        """A build this call can use, if there is one; asks for one where it would pay."""
        try:
            self._seen[key] += 1
        except TypeError:  # a constant that cannot be hashed
            return None
        if len(self._seen) > MAX_KNOWN:
            self._forget()
        if not self._fits(leaves, lone=True):
            return None
        general = self._fits(leaves, lone=False)
        often = self._seen[key] >= CALLS_BEFORE_BUILD
        if general:
            self._ask(ANY_SHAPE, self._build_any_shape)
        fallback = self._any_shape if general else None
        if often and fallback is not None:
            self.executor.table[key] = fallback.steps(leaves, self.shop.others)
        waiting = general and fallback is None and ANY_SHAPE not in self.refusals
        if often and not waiting and (fallback is None or fallback.regions != self.regions):
            kept = [leaf.clone() if isinstance(leaf, torch.Tensor) else leaf for leaf in leaves]
            self._ask(key, lambda: self.build_own(kept, key))
        return fallback

    def _fits(self, leaves: Sequence[Any], *, lone: bool) -> bool:
        if why_unlike(self.fragment.leaves, leaves) is not None:
            return False
        if any(isinstance(leaf, torch.Tensor) and leaf.numel() == 0 for leaf in leaves):
            return False
        return self.fragment.sizes.why_outside(self.fragment.leaves, leaves, lone=lone) is None

    def _ask(self, what: Any, build: Callable[[], None]) -> None:
        """Once each, in the background; what is refused is remembered and said, and leaves its
        place to others."""
        known = what in self._asked or what in self.refusals
        if known or len(self._asked) >= MAX_BUILDS or len(self.refusals) >= MAX_REFUSED:
            return
        self._asked.add(what)

        def work() -> None:
            if self._retired:
                self._asked.discard(what)
                return
            try:
                build()
            except InputError:  # another call of this signature may do better
                self._asked.discard(what)
            except GearshiftError as error:
                self.refusals[what] = str(error)
                self._asked.discard(what)
                log.warning("no build for %s: %s", what, self.refusals[what])

        self.shop.background.submit(work)

    def _forget(self) -> None:
        self._seen.clear()
        self.executor.table = dict(self._own)


def explain_refusal(
    fragment: Fragment, args: tuple[Any, ...], kwargs: dict[str, Any], error: Exception
) -> InputError | None:
    """The model's error in terms of its arguments, if they are not like those captured."""
    leaves = fragment.form.leaves(args, kwargs)
    reason = why_unlike(fragment.leaves, leaves)
    if reason is None:
        assert leaves is not None
        reason = fragment.sizes.why_outside(fragment.leaves, leaves, lone=True)
    if reason is None:
        return None
    lines = str(error).strip().splitlines() or [type(error).__name__]
    return InputError(f"{reason}. The model says: {lines[0][:300]}")
