"""Prints how long files and functions are, longest first: `make size`."""

import ast
import statistics
from pathlib import Path

SOURCE = Path(__file__).parents[1] / "src" / "gearshift"
LONG_FUNCTION, LONG_FILE = 40, 400
NUM_LONGEST = 12


def functions(path: Path) -> list[tuple[int, str]]:
    kinds = (ast.FunctionDef, ast.AsyncFunctionDef)
    nodes = [n for n in ast.walk(ast.parse(path.read_text())) if isinstance(n, kinds)]
    return [((n.end_lineno or n.lineno) - n.lineno + 1, f"{path.name}:{n.name}") for n in nodes]


def table(title: str, rows: list[tuple[int, str]], limit: int) -> None:
    lengths = sorted(length for length, _ in rows)
    p90 = lengths[int(0.9 * (len(lengths) - 1))]
    above = sum(length > limit for length in lengths)
    print(f"{title}: {len(rows)}, median {statistics.median(lengths):.0f} lines, nine in ten at")
    print(f"  most {p90}, above {limit}: {above}")
    for length, name in sorted(rows, reverse=True)[:NUM_LONGEST]:
        print(f"  {length:5}  {name}")


def main() -> None:
    paths = sorted(SOURCE.rglob("*.py"))
    lines = [(len(p.read_text().splitlines()), str(p.relative_to(SOURCE))) for p in paths]
    print(f"{sum(length for length, _ in lines)} lines in {len(lines)} files")
    table("files", [row for row in lines if row[0] > 0], LONG_FILE)
    table("functions", [row for path in paths for row in functions(path)], LONG_FUNCTION)


if __name__ == "__main__":
    main()
