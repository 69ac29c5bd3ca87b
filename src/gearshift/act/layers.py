"""The recurrent layers of plans that serve: settings handed over in the middle of a sequence, and
what each chunk took.

Must not know why the plan changes. Only settings are handed over: a call keeps its engines, and
its state is where it was.
"""

from collections import defaultdict
from collections.abc import Iterable, Iterator

from gearshift.act.compile import Variant
from gearshift.act.executor import drained
from gearshift.act.lower.unroll import Unrolled
from gearshift.act.prepared import Prepared
from gearshift.act.recurrent.runner import Chunk
from gearshift.ir.snapshot import LayerSeen
from gearshift.plan.plan import Region


def take_own(prepared: Prepared) -> None:
    """Its own settings count again, whatever was handed to it when it left."""
    for _, unrolled in _unrolled(_built(prepared)):
        for board in unrolled.boards:
            board.profile = board.own


def hand_over(old: Prepared, new: Prepared) -> None:
    """Calls under way on the old plan go on by the new one's settings from their next chunk on,
    where the same engines work on the same layers."""
    for before in _built(old):
        for after in _built(new):
            if before.fragment is after.fragment and before.signature == after.signature:
                _hand_over(before, after)


def _hand_over(before: Variant, after: Variant) -> None:
    found = {_place(region): unrolled for region, unrolled in _unrolled([after])}
    for region, unrolled in _unrolled([before]):
        new = found.get(_place(region))
        if new is not None and new is not unrolled:
            for board, other in zip(unrolled.boards, new.boards, strict=True):
                board.profile = other.own


def _place(region: Region) -> tuple[object, ...]:
    return region.ops, region.engine, region.split


def chunks_of(variants: Iterable[Variant]) -> Iterator[tuple[str, Chunk]]:
    """By region; of the calls since this was last asked."""
    for region, unrolled in _unrolled(variants):
        for board in unrolled.boards:
            for chunk in drained(board.seen):
                yield region.name, chunk


def layers_of(chunks: Iterable[tuple[str, Chunk]]) -> tuple[LayerSeen, ...]:
    """What each layer did, all its chunks together."""
    found: dict[tuple[str, int], list[Chunk]] = defaultdict(list)
    for region, chunk in chunks:
        found[region, chunk.layer].append(chunk)
    return tuple(_seen(region, layer, mine) for (region, layer), mine in sorted(found.items()))


def _seen(region: str, layer: int, chunks: list[Chunk]) -> LayerSeen:
    return LayerSeen(
        region=region,
        layer=layer,
        busy_s=sum(chunk.end_s - chunk.begin_s for chunk in chunks),
        num_steps=sum(chunk.num_steps for chunk in chunks),
        row_steps=sum(chunk.num_steps * chunk.num_rows for chunk in chunks),
        num_walks=sum(chunk.at == 0 for chunk in chunks),
        most_steps=max(chunk.at + chunk.num_steps for chunk in chunks),
        most_rows=max(chunk.num_rows for chunk in chunks),
    )


def _built(prepared: Prepared) -> list[Variant]:
    return [built for variants in prepared.variants for built in variants.built]


def _unrolled(variants: Iterable[Variant]) -> Iterator[tuple[Region, Unrolled]]:
    for variant in variants:
        for region, built in zip(variant.regions, variant.executables, strict=True):
            if isinstance(built.run, Unrolled):
                yield region, built.run
