"""Forms regions anew from what is measured: divides one that falls short of its roofline where that
helps, merges neighbours whose boundary costs too much.

Proposes only; every re-cut is built, verified and takes turns like any other plan.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import groupby, pairwise

from gearshift.decide.policy import How, Outcome, Proposal
from gearshift.decide.regions.compose import compose
from gearshift.decide.regions.forming import Forming
from gearshift.decide.regions.ledger import Key, Ledger
from gearshift.decide.rests import Rests
from gearshift.decide.rewrite.actions import enough
from gearshift.decide.rewrite.players import Player
from gearshift.decide.rewrite.reward import RewriteWeights, rewrite_reward
from gearshift.decide.rewrite.view import RewriteView
from gearshift.ir.measurement import Measurement
from gearshift.ir.pieces import Piece, cover
from gearshift.ir.roofline import Roofline
from gearshift.ir.snapshot import Situation, Snapshot
from gearshift.ir.topology import CALLER
from gearshift.ir.work import Work
from gearshift.plan.library import BY_NAME, LIBRARY, entry_of
from gearshift.plan.plan import Plan, Region
from gearshift.predict.roofline import compute_s, least_s, memory_s

STEP_S = 1e-4
"""What one more region costs, before anything is known of this model."""
CLEARLY = 0.97
"""Only what takes less than this share of the time is worth a trial."""
PLAINLY = 1.15
"""What gains more need not wait until all is measured."""
MAX_PARTS = 24
"""More are not measured at a time."""
LOOKED_S = 120.0
"""A region in which nothing better was found is left for so long, then for twice that."""
CALM_S = 15.0
"""So long the same plan must have served in the same situation: what is found anew is for long."""
WEIGHTS = RewriteWeights()
Tried = Callable[[Situation, str], bool]
Ops = tuple[str, ...]


@dataclass(slots=True, kw_only=True)
class Former:
    root: Piece
    player: Player
    """Says by which entries a piece is worth measuring, and which to take."""
    forming: Forming
    num_cores: int
    ledger: Ledger = field(default_factory=Ledger)
    _looked: Rests = field(default_factory=Rests)
    _parts: dict[Ops, list[Piece]] = field(default_factory=dict)
    """For a region that is looked into, the parts it may fall into."""
    _asked: dict[str, dict[Key, tuple[RewriteView, str]]] = field(default_factory=dict)
    """By fingerprint: what is being measured, what was seen of it then, and by which entry."""
    _calm: tuple[Situation | None, str] = (None, "")
    _since_s: float = 0.0
    """Since when this plan has served in this situation."""

    def see(self, snapshot: Snapshot) -> None:
        if snapshot.situation is not None:
            self.ledger.measured(snapshot.situation.signature, snapshot.measured)
            self._teach(snapshot.situation.signature, snapshot.measured)
        self.ledger.served(snapshot.samples)
        if self._calm != (snapshot.situation, snapshot.plan):
            self._calm, self._since_s = (snapshot.situation, snapshot.plan), snapshot.at_s

    def _teach(self, signature: str, rows: Iterable[Measurement]) -> None:
        asked = {key: found for those in self._asked.values() for key, found in those.items()}
        for row in rows:
            found = asked.get((signature, row.region, row.rewrite))
            if found is None or found[0].in_force not in found[0].seconds:
                continue
            view, entry = found
            after = replace(view, seconds={**view.seconds, entry: row.latency_s})
            earned = rewrite_reward(WEIGHTS, view=view, entry=entry, after=after)
            for _ in range(self.forming.rl_training_epochs):
                self.player.learn(view, entry, earned.total, after, end=enough(after))

    def learn(self, outcome: Outcome) -> None:
        """What was measured, or cannot be, is not asked for again."""
        asked = self._asked.pop(outcome.plan, {})
        if not outcome.put_off:
            self.ledger.asked.update(asked)

    def propose(
        self, plan: Plan, current_s: float, snapshot: Snapshot, roofline: Roofline, is_old: Tried
    ) -> Proposal | None:
        """For a quiet machine only: beside others a region falls short for their sake. `is_old`
        tells what was tried already."""
        situation = snapshot.situation
        calm_s = snapshot.at_s - self._since_s
        if situation is None or situation.neighbours or calm_s < CALM_S:
            return None
        known_s = self.ledger.in_plan_s[situation, plan.fingerprint]
        if any(region.name not in known_s or not _plain(region) for region in plan.regions):
            return None
        scene = _Scene(self, plan, current_s, situation, roofline, known_s)
        merged = scene.merged()
        if merged is not None and not is_old(situation, merged.plan.fingerprint):
            return merged
        return self._divided(scene, snapshot.at_s, is_old)

    def _divided(self, scene: "_Scene", now_s: float, is_old: Tried) -> Proposal | None:
        for region in scene.falling_short():
            if self._looked((scene.situation.signature, region), now_s):
                continue
            parts = self._parts.setdefault(region.ops, scene.parts_of(region))
            if not 2 <= len(parts) <= MAX_PARTS:
                continue
            found = scene.divided(region, parts)
            if found is not None and is_old(scene.situation, found.plan.fingerprint):
                found = None
            plainly = found is not None and (found.gain or 1.0) > PLAINLY
            wanted = {} if plainly else scene.wanted(region, parts)
            if wanted:
                return self._measure(region, wanted)
            if found is not None:
                return found
            deeper = scene.deeper(region, parts)
            if deeper is None:
                self._looked.add((scene.situation.signature, region), now_s, LOOKED_S)
            else:
                self._parts[region.ops] = deeper
                return self._divided(scene, now_s, is_old)
        return None

    def _measure(self, region: Region, wanted: Mapping[Key, "_Wanted"]) -> Proposal:
        plan = Plan(regions=tuple(found.region for found in wanted.values()))
        self._asked[plan.fingerprint] = {key: (f.view, f.entry) for key, f in wanted.items()}
        settings = ", ".join(dict.fromkeys(part.setting for part in plan.regions))
        return Proposal(
            plan=plan,
            how=How.MEASURE,
            reason=f"{region.name} falls short of its roofline: its parts by {settings}",
        )


@dataclass(frozen=True, slots=True)
class _Wanted:
    """A part to be measured by an entry, and what was seen of it."""

    region: Region
    entry: str
    view: RewriteView


def _plain(region: Region) -> bool:
    return region.split is None and region.engine == CALLER


@dataclass(frozen=True, slots=True)
class _Scene:
    """One plan in one situation, with what is known of its regions."""

    former: Former
    plan: Plan
    current_s: float
    situation: Situation
    roofline: Roofline
    known_s: dict[str, float]

    def falling_short(self) -> list[Region]:
        """The one that loses most time first."""
        share = self.former.forming.performance_threshold
        lost = {r.name: self.known_s[r.name] - self._roof_s(r) for r in self.plan.regions}
        short = [r for r in self.plan.regions if self._roof_s(r) < share * self.known_s[r.name]]
        return sorted(short, key=lambda region: -lost[region.name])

    def _roof_s(self, region: Region) -> float:
        threads = region.threads or self.former.num_cores
        return least_s(self._work(region.ops), self.roofline, threads)

    def _work(self, ops: Ops) -> Work:
        pieces = cover(self.former.root, ops) or [self.former.root]
        works = [piece.work for piece in pieces]
        return Work(
            flops=sum(work.flops for work in works),
            moved_bytes=sum(work.moved_bytes for work in works),
            set_bytes=sum(work.set_bytes for work in works),
        )

    def parts_of(self, region: Region) -> list[Piece]:
        """What it is made of; if that is one piece, what that falls into."""
        pieces = cover(self.former.root, region.ops) or []
        return list(pieces[0].children) if len(pieces) == 1 else pieces

    def deeper(self, region: Region, parts: list[Piece]) -> list[Piece] | None:
        """The part that loses most is taken apart; None if none can be."""
        able = [part for part in parts if 1 < len(part.children) <= MAX_PARTS + 1 - len(parts)]
        if not able:
            return None
        threads = region.threads or self.former.num_cores

        def lost_s(part: Piece) -> float:
            taken = self._settings_s(region, part).values()
            return min(taken, default=0.0) - least_s(part.work, self.roofline, threads)

        worst = max(able, key=lost_s)
        place = parts.index(worst)
        return [*parts[:place], *worst.children, *parts[place + 1 :]]

    def wanted(self, region: Region, parts: Sequence[Piece]) -> dict[Key, _Wanted]:
        """What the player wants to have measured next; of equal parts, one."""
        found: dict[Key, _Wanted] = {}
        for part in parts:
            view = self._view(region, part)
            name = view.in_force
            if name in view.seconds and not enough(view):
                name = self.former.player.choose(view)
            if name not in view.seconds and name in view.legal:
                as_set = self._region(region, part.ops, name)
                key = (self.situation.signature, part.identity, as_set.setting)
                found.setdefault(key, _Wanted(as_set, name, view))
        return found

    def _view(self, region: Region, part: Piece) -> RewriteView:
        """Entries that were asked for and gave nothing are not legal any more."""
        threads = region.threads or self.former.num_cores
        seconds = self._settings_s(region, part)
        asked, signature = self.former.ledger.asked, self.situation.signature
        settings = self._settings(region, part)
        dead = {n for n, text in settings.items() if (signature, part.identity, text) in asked}
        return RewriteView(
            kind=part.kind,
            num_ops=len(part.ops),
            flops=part.work.flops,
            moved_bytes=part.work.moved_bytes,
            set_bytes=part.work.set_bytes,
            read_bytes=float(part.read_bytes),
            made_bytes=float(part.made_bytes),
            compute_s=compute_s(part.work, self.roofline, threads),
            memory_s=memory_s(part.work, self.roofline),
            in_force=_entry(region),
            legal=frozenset(settings) - (dead - seconds.keys()),
            seconds=seconds,
        )

    def _settings(self, region: Region, part: Piece) -> dict[str, str]:
        names = [entry.name for entry in LIBRARY if entry.backend in part.backends]
        if region.rewrite.backend in part.backends:
            names.append(_entry(region))
        return {name: self._region(region, part.ops, name).setting for name in names}

    def _settings_s(self, region: Region, part: Piece) -> dict[str, float]:
        settings = self._settings(region, part)
        return self.former.ledger.by_setting(self.situation.signature, part.identity, settings)

    def _region(self, region: Region, ops: Ops, entry: str) -> Region:
        """As the entry has it; by the one in force, just as it is."""
        if entry == _entry(region):
            return replace(region, ops=ops)
        rewrite = BY_NAME[entry].rewrite(region.threads or self.former.num_cores)
        return Region(ops=ops, rewrite=rewrite)

    def divided(self, region: Region, parts: Sequence[Piece]) -> Proposal | None:
        """Each part by the entry that is best for all of them together. What the region takes less
        than its parts by themselves, it takes less for being one."""
        alone_s = [self._settings_s(region, part) for part in parts]
        before_s, entry = self.known_s[region.name], _entry(region)
        if not all(entry in seconds for seconds in alone_s):
            return None
        loose_s = sum(seconds[entry] for seconds in alone_s)
        joined_s = max(0.0, loose_s - before_s) / (len(parts) - 1)
        apart_s = [self._between_s(first) for first in parts[:-1]]
        found = compose(alone_s, joined_s=joined_s, apart_s=apart_s)
        if found is None or set(found.choices) == {entry}:
            return None
        as_it_is_s = loose_s - joined_s * (len(parts) - 1)
        foreseen_s = self.current_s - before_s * (1 - found.seconds / as_it_is_s)
        if foreseen_s > CLEARLY * self.current_s:
            return None
        pairs = zip(found.choices, parts, strict=True)
        runs = [(name, list(run)) for name, run in groupby(pairs, key=lambda pair: pair[0])]
        regions = [
            self._region(region, tuple(op for _, part in run for op in part.ops), name)
            for name, run in runs
        ]
        others = " and ".join(dict.fromkeys(n for n in found.choices if n != entry)) or entry
        return self._proposal(
            (region,),
            regions,
            foreseen_s,
            f"divided: {region.name} falls short; {len(regions)} regions, some by {others}",
        )

    def _between_s(self, first: Piece) -> float:
        return STEP_S + 2 * first.made_bytes / self.roofline.dram_bytes_s

    def merged(self) -> Proposal | None:
        """All neighbours at once whose boundary costs more than its share."""
        groups: list[list[Region]] = [[self.plan.regions[0]]] if self.plan.regions else []
        for first, second in pairwise(self.plan.regions):
            if self._worth_merging(first, second):
                groups[-1].append(second)
            else:
                groups.append([second])
        if all(len(group) == 1 for group in groups):
            return None
        old = tuple(region for group in groups if len(group) > 1 for region in group)
        new = [self._joined(group) for group in groups if len(group) > 1]
        saved_s = sum(self._boundary_s(r) for group in groups for r in group[:-1])
        return self._proposal(
            old,
            new,
            max(self.current_s - saved_s, self.current_s / 2),
            f"merged: boundaries cost more than their share; {len(old)} regions become {len(new)}",
        )

    def _worth_merging(self, first: Region, second: Region) -> bool:
        both_s = self.known_s[first.name] + self.known_s[second.name]
        apart = self._boundary_s(first) > self.former.forming.merging_threshold * both_s
        return apart and first.rewrite.backend == second.rewrite.backend

    def _boundary_s(self, region: Region) -> float:
        pieces = cover(self.former.root, region.ops)
        return self._between_s(pieces[-1]) if pieces else STEP_S

    def _joined(self, group: Sequence[Region]) -> Region:
        """By the setting of the one that takes longest."""
        longest = max(group, key=lambda region: self.known_s[region.name])
        return replace(longest, ops=tuple(op for region in group for op in region.ops))

    def _proposal(
        self, old: Sequence[Region], new: Sequence[Region], foreseen_s: float, reason: str
    ) -> Proposal:
        kept = [region for region in self.plan.regions if region not in old]
        place = {op: index for index, op in enumerate(self.former.root.ops)}
        regions = sorted((*kept, *new), key=lambda region: place[region.name])
        return Proposal(
            plan=Plan(regions=tuple(regions)),
            how=How.TRY,
            reason=reason,
            predicted_s=foreseen_s,
            current_s=self.current_s,
        )


def _entry(region: Region) -> str:
    """The name of what it runs by; of a backend of the user's own, its setting."""
    entry = entry_of(region.rewrite)
    return region.setting if entry is None else entry.name
