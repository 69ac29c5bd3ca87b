"""What a plan is asked before it serves, and what the model itself answers.

Must not know plans. The model is asked once for each signature, however many plans are examined.
"""

import threading
from collections import deque
from collections.abc import Hashable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from torch import Tensor
from torch.utils import _pytree as pytree

from gearshift.act.samples import Question, ask, extremes, faint, samples, with_odd_values
from gearshift.capture.program import Fragment

MAX_EXAMS, MAX_PASSED = 4, 32
MAX_BYTES = 1 << 28
"""More than this is not kept of all of them together."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Exam:
    usual: tuple[Question, ...]
    small: tuple[Question, ...]
    extreme: tuple[Question, ...]
    odd: tuple[Question, ...]
    """With a NaN or an Inf among the inputs."""

    @property
    def num_bytes(self) -> int:
        asked = (*self.usual, *self.small, *self.extreme, *self.odd)
        leaves = pytree.tree_leaves([(q.leaves, q.answer) for q in asked])
        return sum(leaf.nbytes for leaf in leaves if isinstance(leaf, Tensor))


class Exams:
    """The last ones, for as long as the weights are those they were made with."""

    def __init__(self) -> None:
        self._keeping = threading.Lock()
        self._made: deque[tuple[Fragment, list[Any], Exam]] = deque(maxlen=MAX_EXAMS)
        self._passed: deque[tuple[Exam, Hashable, bool]] = deque(maxlen=MAX_PASSED)

    def of(self, fragment: Fragment, leaves: Sequence[Any]) -> Exam:
        about = [_about(leaf) for leaf in leaves]
        for made_for, made_about, exam in list(self._made):
            if made_for is fragment and made_about == about:
                return exam
        exam = make_exam(fragment, leaves)
        if exam.num_bytes <= MAX_BYTES:
            with self._keeping:
                while sum(kept.num_bytes for _, _, kept in self._made) + exam.num_bytes > MAX_BYTES:
                    self._made.popleft()
                self._made.append((fragment, about, exam))
        return exam

    def passed(self, exam: Exam, kind: Hashable) -> bool | None:
        """Whether plans of this kind take finite numbers only, if one of them has been asked
        everything; None if none has."""
        for done, by, finite_only in list(self._passed):
            if done is exam and by == kind:
                return finite_only
        return None

    def note(self, exam: Exam, kind: Hashable, finite_only: bool) -> None:
        self._passed.append((exam, kind, finite_only))


def make_exam(fragment: Fragment, leaves: Sequence[Any]) -> Exam:
    """What the model refuses is not asked; of the usual, the leaves themselves are instead."""
    usual = [ask(fragment, drawn) or ask(fragment, list(leaves)) for drawn in samples(leaves)]
    return Exam(
        usual=tuple(question for question in usual if question is not None),
        small=_answered(fragment, faint(leaves)),
        extreme=_answered(fragment, extremes(leaves)),
        odd=_answered(fragment, with_odd_values(leaves)),
    )


def _answered(fragment: Fragment, drawn: Iterable[list[Any]]) -> tuple[Question, ...]:
    asked = [ask(fragment, leaves) for leaves in drawn]
    return tuple(question for question in asked if question is not None)


def _about(leaf: Any) -> Any:
    return (leaf.shape, leaf.dtype) if isinstance(leaf, Tensor) else leaf
