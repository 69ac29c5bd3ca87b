"""A plan ready to serve: arguments in, the model's outputs out.

This is the hot path. No logging, no JSON, no lock; whatever is not a known signature goes `aside`.
"""

import math
from abc import ABC, abstractmethod
from bisect import bisect_left
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import count
from time import perf_counter
from typing import Any, Protocol, TypeVar

import torch
from torch import Tensor
from torch.nn import Parameter
from torch.nn.utils.rnn import PackedSequence
from torch.utils import _pytree as pytree

from gearshift.act.engines.protocol import Stretch
from gearshift.act.labels import Key, Label, Labels
from gearshift.act.steps import MAX_MARKS, Steps
from gearshift.act.tally import Tallies
from gearshift.capture.calls import refuse_absurd
from gearshift.capture.program import Fragment
from gearshift.ir.topology import CALLER
from gearshift.plan.plan import Plan, Region


class Aside(Protocol):
    """What happens to calls the table does not know, and when a step fails."""

    def unknown(
        self,
        executor: "FragmentExecutor",
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
        leaves: Sequence[Any] | None,
        key: Key | None,
    ) -> Any: ...

    def failed(
        self,
        executor: "FragmentExecutor",
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
        region: int,
        error: Exception,
    ) -> Any: ...


def key_of(leaves: Sequence[Any]) -> Key | None:
    """What a call's steps depend on; None if it must run eagerly: gradients, odd tensors."""
    key: list[Any] = []
    for leaf in leaves:
        if isinstance(leaf, PackedSequence):
            if leaf.data.requires_grad and torch.is_grad_enabled():
                return None
            key += [(int(leaf.batch_sizes[0]), *leaf.data.shape[1:]), leaf.data.dtype]
        elif isinstance(leaf, Tensor):
            if type(leaf) is not Tensor and type(leaf) is not Parameter:
                return None
            if leaf.requires_grad and torch.is_grad_enabled():
                return None
            if not leaf.is_cpu or leaf.layout is not torch.strided:
                return None
            key.append(leaf.shape)
            key.append(leaf.dtype)
        else:
            key.append(leaf)
            key.append(type(leaf))
    return tuple(key)


def outer_key(args: tuple[Any, ...], kwargs: dict[str, Any]) -> Key | None:
    """Of a model that was not captured whole: its form is not known."""
    return key_of(pytree.tree_leaves((args, kwargs)))


Spans = dict[str, tuple[Stretch, ...]]
"""For each region who worked on it, and when: at once if it is divided, one after the other if it
ran several times."""
T = TypeVar("T")


def drained(kept: deque[T]) -> Iterator[T]:
    """What it holds, taken out; several may take at once."""
    with suppress(IndexError):
        while True:
            yield kept.popleft()


class FragmentExecutor:
    """One fragment under one plan: for each signature seen, its steps."""

    __slots__ = ("aside", "flatten", "fragment", "regions", "table", "unchanged", "unflatten")

    def __init__(self, fragment: Fragment, regions: tuple[Region, ...], aside: Aside) -> None:
        self.fragment = fragment
        self.regions = regions
        self.aside = aside
        self.table: dict[Key, Steps] = {}
        self.flatten = fragment.form.leaves
        self.unflatten = unflattener(fragment.out_spec)
        self.unchanged = fragment.watch.unchanged

    def __call__(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        marks = [perf_counter()]
        leaves = self.flatten(args, kwargs)
        key = None if leaves is None or torch.is_autocast_enabled("cpu") else key_of(leaves)
        steps = self.find(key)
        if steps is None or not self.unchanged():
            return self.aside.unknown(self, args, kwargs, leaves, key)
        assert leaves is not None
        values = [*leaves, *steps.rest]
        try:
            for step in steps.run:
                step(values)
                marks.append(perf_counter())
        except Exception as error:
            return self.aside.failed(self, args, kwargs, steps.regions[len(marks) - 1], error)
        steps.marks.append((marks, [values[i] for i in steps.elsewhere.values()]))
        return self.unflatten([values[i] for i in steps.outputs])

    def ran(self, steps: Steps) -> Iterator[tuple[list[float], Spans]]:
        """Calls since this was last asked: when each step ended, and when each region ran. A check
        of the inputs counts for the first region."""
        names = [region.name for region in self.regions]
        for marks, elsewhere in drained(steps.marks):
            here: dict[str, tuple[float, float]] = {}
            for index, begin_s, end_s in zip(steps.regions, marks[:-1], marks[1:], strict=True):
                first_s, _ = here.get(names[index], (begin_s, end_s))
                here[names[index]] = (first_s, end_s)
            spans: Spans = {name: ((CALLER, *span, 1.0),) for name, span in here.items()}
            for index, stretches in zip(steps.elsewhere, elsewhere, strict=True):
                spans[names[index]] = stretches
            yield marks, spans

    def find(self, key: Key | None) -> Steps | None:
        try:
            return self.table.get(key)  # type: ignore[arg-type]
        except TypeError:  # a constant that cannot be hashed
            return None


def unflattener(spec: pytree.TreeSpec) -> Callable[[list[Any]], Any]:
    """The result's shape, without the general machinery for the usual cases."""
    if spec.is_leaf():
        return lambda results: results[0]
    if spec.type is tuple and all(child.is_leaf() for child in spec.children()):
        return tuple
    nested = _nested(spec)
    if nested is not None:
        return lambda results: nested(iter(results))
    return lambda results: pytree.tree_unflatten(results, spec)


def _nested(spec: pytree.TreeSpec) -> Callable[[Iterator[Any]], Any] | None:
    """Of tuples in tuples; None if there is anything else in it."""
    if spec.is_leaf():
        return next
    inner = [_nested(child) for child in spec.children()]
    parts = [part for part in inner if part is not None]
    if spec.type is not tuple or len(parts) < len(inner):
        return None
    return lambda results: tuple([part(results) for part in parts])


class LiveCheck(Protocol):
    """Takes a call's inputs and result now and then, to compare them with the model's later."""

    due_s: float

    def take(
        self,
        plan: Plan,
        fragment: Fragment,
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
        result: Any,
    ) -> None: ...


@dataclass(frozen=True, slots=True)
class Timing:
    """One call: what came in, when, how long it took, and when each region ran."""

    label: Label
    at_s: float
    call_s: float
    spans: Spans = field(default_factory=dict)

    @property
    def region_s(self) -> dict[str, float]:
        return {region: lasted_s(stretches) for region, stretches in self.spans.items()}

    @property
    def parts(self) -> dict[str, dict[str, tuple[float, float]]]:
        """For each region that ran elsewhere than with the caller, by engine: its share of the
        work, and how long it was at it."""
        found: dict[str, dict[str, tuple[float, float]]] = {}
        for region, stretches in self.spans.items():
            for engine, begin_s, end_s, share in stretches:
                if engine != CALLER:
                    done = found.setdefault(region, {})
                    before_s = done.get(engine, (0.0, 0.0))[1]
                    done[engine] = (share, before_s + end_s - begin_s)
        return found


def lasted_s(stretches: Iterable[Stretch]) -> float:
    """How long anybody was at work: what overlaps counts once."""
    total_s, until_s = 0.0, -math.inf
    for begin_s, end_s in sorted((begin_s, end_s) for _, begin_s, end_s, _ in stretches):
        total_s += max(0.0, end_s - max(begin_s, until_s))
        until_s = max(until_s, end_s)
    return total_s


class Executor(ABC):
    """A whole model under one plan. Calls are counted in and out, so that it can be let go."""

    __slots__ = ("entered", "left", "plan")

    def __init__(self, plan: Plan) -> None:
        self.plan = plan
        self.entered, self.left = count(), count()

    @abstractmethod
    def __call__(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any: ...

    def runs(self, plan: Plan) -> bool:
        """Whether calls may run on this plan."""
        return plan == self.plan

    def timings(self) -> Iterator[Timing]:
        """Of the calls since this was last asked; those of unknown sizes are not among them."""
        return iter(())

    def in_flight(self) -> int:
        return _value(self.entered) - _value(self.left)


def _value(counter: "count[int]") -> int:
    """Where a counter stands, without moving it."""
    state: Any = counter.__reduce__()
    return int(state[1][0])


class WholeExecutor(Executor):
    """The model captured whole: its one fragment."""

    __slots__ = ("audit", "labels", "whole")

    def __init__(
        self, plan: Plan, whole: FragmentExecutor, audit: LiveCheck, labels: Labels
    ) -> None:
        super().__init__(plan)
        self.whole = whole
        self.labels = labels
        self.audit = audit

    def __call__(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        start_s = perf_counter()
        result = self.whole(args, kwargs)
        if start_s >= self.audit.due_s:
            self.audit.take(self.plan, self.whole.fragment, args, kwargs, result)
        return result

    def timings(self) -> Iterator[Timing]:
        for key, steps in list(self.whole.table.items()):
            label = self.labels.of(key)
            for marks, spans in self.whole.ran(steps):
                yield Timing(label, marks[0], marks[-1] - marks[0], spans)


def _begin_s(spans: Spans) -> float:
    return min(begin_s for stretches in spans.values() for _, begin_s, _, _ in stretches)


def _all_spans(fragment: FragmentExecutor) -> Iterator[Spans]:
    for steps in list(fragment.table.values()):
        for _, spans in fragment.ran(steps):
            if spans:
                yield spans


class PartialExecutor(Executor):
    """The model's own Python between its fragments. Every plan has a copy of that shell of its own,
    so that a call runs wholly on one plan."""

    __slots__ = ("audit", "broken", "fragments", "labels", "shell", "tallies", "times")

    def __init__(
        self,
        plan: Plan,
        fragments: Mapping[str, FragmentExecutor],
        skeleton: Callable[[Callable[[str], Callable[..., Any]]], Callable[..., Any]],
        tallies: Tallies,
        audit: LiveCheck,
        broken: Callable[[Plan, tuple[Any, ...], dict[str, Any], Exception], Any],
        labels: Labels,
    ) -> None:
        super().__init__(plan)
        self.labels = labels
        self.audit = audit
        self.broken = broken
        self.fragments = fragments
        self.tallies = tallies
        self.shell = skeleton(self._stand_in)
        self.times: deque[tuple[Key | None, float, float]] = deque(maxlen=MAX_MARKS)

    def __call__(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        tally = self.tallies.mine()
        start_s = perf_counter()
        inside_s = tally.inside_s
        try:
            result = self.shell(*args, **kwargs)
        except Exception as error:
            return self.broken(self.plan, args, kwargs, error)
        call_s = perf_counter() - start_s
        tally.outside_s += call_s - (tally.inside_s - inside_s)
        self.times.append((outer_key(args, kwargs), start_s, call_s))
        return result

    def timings(self) -> Iterator[Timing]:
        """A region belongs to the call it began in; of calls at the same time, to the first."""
        ran = [spans for f in self.fragments.values() for spans in _all_spans(f)]
        ran.sort(key=_begin_s)
        begins_s = list(map(_begin_s, ran))
        for key, at_s, call_s in drained(self.times):
            inside = ran[bisect_left(begins_s, at_s) : bisect_left(begins_s, at_s + call_s)]
            spans: Spans = {}
            for name, stretches in (entry for part in inside for entry in part.items()):
                spans[name] = (*spans.get(name, ()), *stretches)
            yield Timing(self.labels.of(key), at_s, call_s, spans)

    def _stand_in(self, name: str) -> Callable[..., Any]:
        fragment, tallies, audit = self.fragments[name], self.tallies, self.audit

        def stand_in(*args: Any, **kwargs: Any) -> Any:
            start_s = perf_counter()
            result = fragment(args, kwargs)
            if start_s >= audit.due_s:
                audit.take(self.plan, fragment.fragment, args, kwargs, result)
            tallies.mine().inside_s += perf_counter() - start_s
            return result

        return stand_in


class EagerExecutor(Executor):
    """The user's own model, as it was before."""

    __slots__ = ("eager", "key", "labels", "names", "refuse", "tallies", "times")

    def __init__(
        self,
        plan: Plan,
        eager: Callable[..., Any],
        refuse: Callable[..., Exception | None],
        names: Sequence[str],
        key: Callable[[tuple[Any, ...], dict[str, Any]], Key | None],
        labels: Labels,
        tallies: Tallies | None,
    ) -> None:
        """With tallies, the time counts as outside the capture: of what was not captured whole."""
        super().__init__(plan)
        self.eager = eager
        self.refuse = refuse
        self.names = names
        self.key = key
        self.labels = labels
        self.tallies = tallies
        self.times: deque[tuple[Key | None, float, float]] = deque(maxlen=MAX_MARKS)

    def __call__(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        start_s = perf_counter()
        refuse_absurd((*args, *kwargs.values()), (*self.names[: len(args)], *kwargs))
        try:
            result = self.eager(*args, **kwargs)
        except Exception as error:
            explained = self.refuse(args, kwargs, error)
            if explained is None:
                raise
            raise explained from error
        finally:
            if self.tallies is not None:
                self.tallies.mine().outside_s += perf_counter() - start_s
        self.times.append((self.key(args, kwargs), start_s, perf_counter() - start_s))
        return result

    def timings(self) -> Iterator[Timing]:
        for key, at_s, call_s in drained(self.times):
            yield Timing(self.labels.of(key), at_s, call_s)
