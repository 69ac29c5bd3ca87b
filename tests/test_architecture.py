"""Who may import whom, what the pure packages and the hot path must not know, what is public.
Knows the source by its syntax tree; imports inside functions count, TYPE_CHECKING does not.
"""

import ast
import importlib
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest

import gearshift

ROOT = Path(gearshift.__file__).parent
FACADE = "gearshift"
PARTS = {"ir", "plan", "capture", "act", "zoo", "errors", "observe", "predict", "decide"}
PARTS |= {"busy", "endings", "settings", "loop", "hands", "changeover", "rehearsal", "view", "sim"}

MAY_IMPORT: dict[str, set[str]] = {
    "errors": set(),
    "ir": set(),
    "plan": {"ir", "errors"},
    "zoo": set(),
    "capture": {"ir", "errors", "zoo"},
    "settings": set(),
    "busy": set(),
    "endings": set(),
    "act": {"ir", "plan", "capture", "errors"},
    "observe": {"ir", "plan", "errors", "settings"},
    "predict": {"ir", "plan"},
    "decide": {"ir", "plan", "errors", "observe", "predict"},
    "sim": {"ir", "plan", "errors", "decide", "act"},
    "hands": {"ir", "plan", "observe", "decide"},
    "changeover": {"ir", "plan", "decide", "predict", "hands"},
    "loop": {"ir", "plan", "observe", "decide", "hands", "changeover"},
    "rehearsal": {"ir", "plan", "decide", "hands", "loop"},
    "view": {"plan"},
    # Recipes wire the parts; nothing above knows of them.
    "runtime_hands": PARTS,
    "adaptive": {*PARTS, "runtime_hands"},
    "tell_regions": PARTS,
    "tell": {*PARTS, "adaptive", "tell_regions"},
    "runtime": {*PARTS, "adaptive", "tell"},
    FACADE: {*PARTS, "runtime"},
    "dynamo": {*PARTS, "runtime"},
    "profile": {*PARTS, "runtime"},
    "bench": {*PARTS, "runtime", "profile", "adaptive"},
    "live": {*PARTS, "runtime", "bench"},
    "doctor": {*PARTS, "runtime", "tell"},
    "moment": {*PARTS, "runtime", "live", "tell", "tell_regions"},
    "console": {*PARTS, "runtime", "live", "moment", "tell"},
    "tables": {*PARTS, "runtime", "live", "tell", "doctor", "console"},
    "training": {*PARTS, "bench", "console", "tell"},
    "results": set(),
    "commands": {
        *PARTS,
        *("runtime", "profile", "live", "bench", "doctor", "tell", "console", "tables", "results"),
        "training",
    },
    "cli": {"decide", "plan", "errors", "console", "results", "commands", "training"},
}
"""For each package or module directly under gearshift, the others it may import."""

PURE = ("ir", "plan")
EFFECTS = {"asyncio", "io", "os", "pathlib", "random", "socket", "subprocess", "threading", "time"}
HOT_PATH = ("act/executor.py", "act/steps.py")
SLOW = {"json", "logging", "threading"}


def sources() -> list[Path]:
    return sorted(ROOT.rglob("*.py"))


def owner(path: Path) -> str:
    """The package or module under gearshift that a file belongs to."""
    first = path.relative_to(ROOT).parts[0].removesuffix(".py")
    return FACADE if first == "__init__" else first


def imported(tree: ast.AST, package: str) -> Iterator[tuple[int, str]]:
    """Line and full name of everything imported, wherever it stands, for code in this package."""
    for child in ast.iter_child_nodes(tree):
        if isinstance(child, ast.If) and "TYPE_CHECKING" in ast.unparse(child.test):
            for other in child.orelse:
                yield from imported(ast.Module(body=[other], type_ignores=[]), package)
        elif isinstance(child, ast.Import):
            yield from ((child.lineno, alias.name) for alias in child.names)
        elif isinstance(child, ast.ImportFrom):
            base = _base(child, package)
            yield from ((child.lineno, f"{base}.{alias.name}") for alias in child.names)
        else:
            yield from imported(child, package)


def _base(node: ast.ImportFrom, package: str) -> str:
    if node.level == 0:
        return node.module or ""
    parents = package.split(".")
    above = parents[: len(parents) - node.level + 1]
    return ".".join([*above, node.module] if node.module else above)


def imports_of(path: Path) -> list[tuple[int, str]]:
    package = ".".join(("gearshift", *path.relative_to(ROOT).parent.parts))
    return list(imported(ast.parse(path.read_text(encoding="utf-8")), package))


def target(name: str) -> str | None:
    """The package or module under gearshift that a full name lies in; None outside gearshift."""
    first, *rest = name.split(".")
    if first != "gearshift":
        return None
    known = rest and ((ROOT / rest[0]).is_dir() or (ROOT / f"{rest[0]}.py").is_file())
    return rest[0] if known else FACADE


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ("import torch.nn as nn, json", ["torch.nn", "json"]),
        ("from gearshift.ir import graph", ["gearshift.ir.graph"]),
        ("def f():\n    from gearshift.act.steps import bind", ["gearshift.act.steps.bind"]),
        ("from . import cut", ["gearshift.plan.cut"]),
        ("from ..ir.graph import Graph", ["gearshift.ir.graph.Graph"]),
        ("try:\n    import a\nexcept ImportError:\n    import b", ["a", "b"]),
        ("if TYPE_CHECKING:\n    import torch\nelse:\n    import json", ["json"]),
        ("if typing.TYPE_CHECKING:\n    import torch", []),
        ("if fast:\n    import torch", ["torch"]),
    ],
)
def test_imports_are_found_wherever_they_stand(source: str, expected: list[str]) -> None:
    found = [name for _, name in imported(ast.parse(source), "gearshift.plan")]
    assert found == expected


def test_names_are_traced_to_the_package_they_lie_in() -> None:
    names = ("gearshift.plan.cut.Divide", "gearshift.runtime.adapt", "gearshift.adapt", "torch.nn")
    assert [target(name) for name in names] == ["plan", "runtime", FACADE, None]


def test_every_package_has_its_row_in_the_table() -> None:
    missing = {owner(path) for path in sources()} - MAY_IMPORT.keys()
    assert not missing, (
        f"gearshift.{', gearshift.'.join(sorted(missing))}: new here; add a row to MAY_IMPORT in"
        " tests/test_architecture.py that says what it may import"
    )


def test_nobody_imports_what_the_table_does_not_allow() -> None:
    wrong = []
    for path in sources():
        me = owner(path)
        allowed = MAY_IMPORT.get(me, set()) | {me}
        for line, name in imports_of(path):
            other = target(name)
            if other is not None and other not in allowed:
                where = f"{path.relative_to(ROOT.parent)}:{line}"
                may = ", ".join(sorted(allowed - {me})) or "nothing of gearshift"
                wrong.append(f"{where}: {me} imports {name}, but {me} may import {may}")
    assert not wrong, "\n" + "\n".join(wrong)


@pytest.mark.parametrize("package", PURE)
def test_pure_packages_know_no_library_no_clock_and_no_file(package: str) -> None:
    wrong = []
    for path in sorted((ROOT / package).rglob("*.py")):
        for line, name in imports_of(path):
            first = name.split(".")[0]
            outside = first not in {*sys.stdlib_module_names, "gearshift"}
            if outside or first in EFFECTS:
                wrong.append(f"{path.relative_to(ROOT.parent)}:{line}: imports {name}")
    assert not wrong, f"{package} is pure data:\n" + "\n".join(wrong)


@pytest.mark.parametrize("name", HOT_PATH)
def test_the_hot_path_neither_logs_nor_locks_nor_serialises(name: str) -> None:
    wrong = [
        f"{name}:{line}: {full}"
        for line, full in imports_of(ROOT / name)
        if full.split(".")[0] in SLOW
    ]
    assert not wrong, "a file on the hot path imports\n" + "\n".join(wrong)


def test_all_is_what_the_package_really_offers() -> None:
    assert sorted(gearshift.__all__) == dir(gearshift)
    for name in gearshift.__all__:
        assert not isinstance(getattr(gearshift, name), ModuleType)
    with pytest.raises(AttributeError, match="no attribute 'adopt'"):
        _ = gearshift.adopt


def test_every_all_can_be_imported() -> None:
    packages = [path for path in sources() if "__all__" in path.read_text(encoding="utf-8")]
    assert ROOT / "__init__.py" in packages
    for path in packages:
        parts = path.relative_to(ROOT.parent).with_suffix("").parts
        module = importlib.import_module(".".join(parts).removesuffix(".__init__"))
        missing = [name for name in module.__all__ if not hasattr(module, name)]
        assert not missing, f"{module.__name__}.__all__ names {missing}, which it has not"
        assert len(set(module.__all__)) == len(module.__all__), module.__name__
