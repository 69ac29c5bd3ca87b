"""How many threads numpy's products use: those of the library that multiplies for it.

Must not know who multiplies, or why. A library that it does not know stays as it is.
"""

import ctypes
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

FORMS = (
    "scipy_openblas_{}_num_threads64_",
    "openblas_{}_num_threads64_",
    "openblas_{}_num_threads",
)
"""Of its functions' names, in numpy's own wheels and elsewhere."""


@contextmanager
def one_blas_thread() -> Iterator[bool]:
    """While it lasts, a product is computed by the thread that asks for it and by no other; False
    if that cannot be had."""
    library, form = _openblas()
    if library is None:
        yield False
        return
    num_threads = getattr(library, form.format("get"))()
    getattr(library, form.format("set"))(1)
    try:
        yield True
    finally:
        getattr(library, form.format("set"))(num_threads)


def _openblas() -> tuple[ctypes.CDLL | None, str]:
    """The one that this process has loaded, and the form of its names."""
    for line in Path("/proc/self/maps").read_text().splitlines():
        path = line.split(maxsplit=5)[-1]
        if "openblas" in path:
            library = ctypes.CDLL(path)
            known = [form for form in FORMS if hasattr(library, form.format("set"))]
            return (library, known[0]) if known else (None, "")
    return None, ""
