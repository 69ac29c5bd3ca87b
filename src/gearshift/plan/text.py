"""Plans as text: JSON to keep and to write by hand, a table to read, a diff to compare.

Must not know files; text in, text out.
"""

import json
from dataclasses import asdict, fields, replace
from typing import Any

from gearshift.errors import PlanError
from gearshift.ir.graph import Graph
from gearshift.ir.topology import CALLER
from gearshift.plan.plan import Plan, Region, ordered
from gearshift.plan.rewrite import Rewrite
from gearshift.plan.split import ROWS, Split
from gearshift.plan.unroll import Steps, Unroll

SCHEMA_VERSION = 1
REST = "*"
RANGE = ".."


def to_data(plan: Plan) -> dict[str, Any]:
    return {"schema_version": SCHEMA_VERSION, "regions": [asdict(r) for r in plan.regions]}


def dumps(plan: Plan) -> str:
    return json.dumps(to_data(plan), indent=2)


def loads(text: str, graph: Graph) -> Plan:
    """A plan from JSON. In `ops` a name is an op, a module's path (all ops in it), a range
    `first..last` in graph order, or `*` for every op no other region names."""
    try:
        data = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise PlanError(f"not JSON: {error}") from None
    if not isinstance(data, dict) or not isinstance(data.get("regions"), list):
        raise PlanError('a plan is {"schema_version": 1, "regions": [{"ops": [...], ...}]}')
    version = data.get("schema_version")
    if version != SCHEMA_VERSION or isinstance(version, bool):
        raise PlanError(f"plan schema_version is {version!r}, this version reads {SCHEMA_VERSION}")
    regions = [_region(entry, graph) for entry in data["regions"]]
    named = {op for region in regions for op in region.ops}
    rest = tuple(op.name for op in graph.ops if op.name not in named)
    full = [_fill(region, rest) for region in regions]
    if any(not region.ops for region in full):
        raise PlanError("a region's ops are empty: name ops, modules, ranges, or '*' for the rest")
    return ordered(graph, tuple(full))


def plain(data: Any) -> Plan:
    """A plan as `to_data` wrote it, to the letter, without a graph to look names up in."""
    regions = [
        Region(
            ops=tuple(entry["ops"]),
            engine=entry["engine"],
            rewrite=Rewrite(**entry["rewrite"]),
            split=_split(entry.get("split")),
            unroll=_unroll(entry.get("unroll")),
        )
        for entry in data["regions"]
    ]
    return Plan(regions=tuple(regions))


def _split(entry: Any) -> Split | None:
    """From JSON, where a tuple is a list."""
    if entry is None:
        return None
    shares = entry.get("shares")
    return Split(**{**entry, "shares": shares and tuple(shares)})


def _unroll(entry: Any) -> Unroll | None:
    return None if entry is None else Unroll(layers=tuple(Steps(**s) for s in entry["layers"]))


def _fill(region: Region, rest: tuple[str, ...]) -> Region:
    if REST not in region.ops:
        return region
    ops = tuple(op for op in region.ops if op != REST)
    return replace(region, ops=(*ops, *rest))


def _region(entry: Any, graph: Graph) -> Region:
    if not isinstance(entry, dict):
        raise PlanError(
            f"a region is an object with ops, engine, rewrite, split, unroll, not {entry!r}"
        )
    _only_known(entry, Region, "region")
    names = entry.get("ops", [])
    names = [names] if isinstance(names, str) else names
    if not isinstance(names, list) or not all(isinstance(name, str) for name in names):
        raise PlanError(f"a region's ops are a list of names, not {names!r}")
    ops = dict.fromkeys(op for name in names for op in _expand(name, graph))
    engine = entry.get("engine", CALLER)
    if not isinstance(engine, str):
        raise PlanError(f"an engine is a name such as 'caller' or 'cpu:0', not {engine!r}")
    return Region(
        ops=tuple(ops),
        engine=engine,
        rewrite=parse_rewrite(entry.get("rewrite", {})),
        split=parse_split(entry.get("split")),
        unroll=parse_unroll(entry.get("unroll")),
    )


def parse_split(entry: Any) -> Split | None:
    if entry is None:
        return None
    if isinstance(entry, str):
        return Split(how=entry)
    if not isinstance(entry, dict):
        raise PlanError(f"a split is its name or an object, not {entry!r}")
    _only_known(entry, Split, "split")
    how, shares, block = entry.get("how", ROWS), entry.get("shares"), entry.get("block")
    if not isinstance(how, str):
        raise PlanError(f"split.how cannot be {how!r}")
    if block is not None and type(block) is not int:
        raise PlanError(f"split.block cannot be {block!r}")
    numbers = shares if isinstance(shares, list) else []
    if shares is not None and not (numbers and all(type(number) is int for number in numbers)):
        raise PlanError(f"split.shares cannot be {shares!r}: a list of whole numbers")
    return _split(entry)


def parse_unroll(entry: Any) -> Unroll | None:
    """An object with the setting of each layer: `{"layers": [{"then": 16}, {"then": 1}]}`."""
    if entry is None:
        return None
    if not isinstance(entry, dict) or not isinstance(entry.get("layers"), list):
        raise PlanError(f"an unroll is an object with a list of layers, not {entry!r}")
    _only_known(entry, Unroll, "unroll")
    kinds: dict[str, type] = {"then": int, "first": int, "kernel": str}
    for steps in entry["layers"]:
        if not isinstance(steps, dict):
            raise PlanError(f"a layer's steps are an object, not {steps!r}")
        _only_known(steps, Steps, "steps")
        for key, value in steps.items():
            if type(value) is not kinds[key]:
                raise PlanError(f"steps.{key} cannot be {value!r}")
    return _unroll(entry)


def parse_rewrite(entry: Any) -> Rewrite:
    if isinstance(entry, str):
        return Rewrite(backend=entry)
    if not isinstance(entry, dict):
        raise PlanError(f"a rewrite is a backend's name or an object, not {entry!r}")
    _only_known(entry, Rewrite, "rewrite")
    kinds: dict[str, type | tuple[type, ...]]
    kinds = {"backend": str, "threads": (int, type(None)), "spin": bool, "option": str}
    for key, value in entry.items():
        if not isinstance(value, kinds[key]) or (key == "threads" and isinstance(value, bool)):
            raise PlanError(f"rewrite.{key} cannot be {value!r}")
    return Rewrite(**entry)


def _only_known(entry: dict[str, Any], cls: Any, what: str) -> None:
    known = [f.name for f in fields(cls)]
    unknown = [key for key in entry if key not in known]
    if unknown:
        raise PlanError(f"unknown {what} setting {unknown[0]!r}; there are {', '.join(known)}")


def _expand(name: str, graph: Graph) -> list[str]:
    if name == REST or name in graph.position:
        return [name]
    if RANGE in name:
        first, _, last = (part.strip() for part in name.partition(RANGE))
        if first in graph.position and last in graph.position:
            span = graph.ops[graph.position[first] : graph.position[last] + 1]
            if not span:
                raise PlanError(f"the range {name!r} runs backwards: {last} comes before {first}")
            return [op.name for op in span]
    inside = [op.name for op in graph.ops if f"{op.scope}.".startswith(f"{name}.")]
    if not inside:
        raise PlanError(f"{name!r} is no op, module path or range of ops of this model")
    return inside


def render(plan: Plan, graph: Graph) -> str:
    """One line per region."""
    rows = [(r.engine, r.setting, len(r.ops), _span(r, graph)) for r in plan.regions]
    lines = [f"plan {plan.fingerprint}: {len(rows)} region{'s' if len(rows) != 1 else ''}"]
    for engine, rewrite, num_ops, span in rows:
        lines.append(f"  {engine:<8} {rewrite:<20} {num_ops:>4} ops  {span}")
    return "\n".join(lines)


def _span(region: Region, graph: Graph) -> str:
    scopes = list(dict.fromkeys(graph.by_name[op].scope.split(".")[0] for op in region.ops))
    span = region.name if len(region.ops) == 1 else f"{region.ops[0]}{RANGE}{region.ops[-1]}"
    inside = [scope for scope in scopes if scope]
    if not inside:
        return span
    few = ", ".join(inside[:4]) + (", ..." if len(inside) > 4 else "")
    return f"{span}  ({few})"


def diff(old: Plan, new: Plan) -> str:
    """What changed, region by region; empty if nothing did."""
    gone = [r for r in old.regions if r not in new.regions]
    come = [r for r in new.regions if r not in old.regions]
    lines = [f"- {_short(r)}" for r in gone] + [f"+ {_short(r)}" for r in come]
    return "\n".join(lines)


def _short(region: Region) -> str:
    ops = region.name if len(region.ops) == 1 else f"{region.ops[0]}{RANGE}{region.ops[-1]}"
    return f"{ops} ({len(region.ops)} ops) on {region.engine}, {region.setting}"
