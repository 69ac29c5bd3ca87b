"""Results on stdout: one JSON document and nothing else, where that was asked for.

Must not know what the results are.
"""

import json
import os
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from math import isfinite
from typing import Any, TextIO

_out: TextIO | None = None


def write_json(data: Mapping[str, Any]) -> None:
    """What is no number, such as the difference between things that cannot be compared, is null."""
    text = json.dumps(_plain(data), allow_nan=False)
    print(text, file=_out or sys.stdout, flush=True)


@contextmanager
def alone() -> Iterator[None]:
    """Whatever else is printed meanwhile, by a model or by a library, goes to stderr."""
    global _out
    before = sys.stdout
    real = before is sys.__stdout__
    if real:
        before.flush()
        _out = os.fdopen(os.dup(before.fileno()), "w")
        os.dup2(sys.stderr.fileno(), before.fileno())
    else:
        _out, sys.stdout = before, sys.stderr
    try:
        yield
    finally:
        if real:
            before.flush()
            os.dup2(_out.fileno(), before.fileno())
            _out.close()
        sys.stdout, _out = before, None


def _plain(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {key: _plain(entry) for key, entry in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(entry) for entry in value]
    return None if isinstance(value, float) and not isfinite(value) else value
