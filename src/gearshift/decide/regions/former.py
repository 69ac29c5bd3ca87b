"""Forms regions anew from what is measured: divides one that falls short of its roofline where that
helps, merges neighbours whose boundary costs too much.

Proposes only; every re-cut is built, verified and takes turns like any other plan.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
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
from gearshift.ir.pieces import MAX_PARTS, Piece, cover
from gearshift.ir.roofline import Roofline
from gearshift.ir.snapshot import Situation, Snapshot
from gearshift.ir.topology import CALLER
from gearshift.ir.work import Work
from gearshift.plan.library import BY_NAME, LIBRARY, Build, entry_of
from gearshift.plan.plan import Plan, Region
from gearshift.predict.roofline import compute_s, least_s, memory_s

DIVIDED, MERGED = "divided", "merged"
"""What the reason of a re-cut begins with."""
STEP_S, MORE_S = 1e-4, {"openvino": 3e-4}
"""What one more region costs, before anything is known of this model; and how much more beside one
by OpenVINO, which changes layouts there and fuses less."""
CLEARLY = 0.97
"""Only what takes less than this share of the time is worth a trial."""
PLAINLY = 1.15
"""What gains more need not wait until all is measured."""
LOOKED_S = 120.0
"""A region in which nothing better was found is left for so long, then for twice that."""
CALM_S = 30.0
"""So much time of calls the same plan must have served in the same situation: what is found anew is
for long."""
MAX_ASKED = 4
"""So many questions are remembered: what was measured may come later than the word that it was."""
SLOW = frozenset(entry.name for entry in LIBRARY if entry.build is Build.SLOW)
WEIGHTS = RewriteWeights()
Tried = Callable[[Situation, str], bool]
Ops = tuple[str, ...]


@dataclass(slots=True, kw_only=True)
class Former:
    root: Piece
    signature: str
    """What the pieces' work is counted for, and what they are measured on."""
    player: Player
    """Says by which entries a piece is worth measuring, and which to take."""
    forming: Forming
    num_cores: int
    ledger: Ledger = field(default_factory=Ledger)
    _looked: Rests = field(default_factory=Rests)
    _parts: dict[Ops, list[Piece]] = field(default_factory=dict)
    """For a region that is looked into, the parts it may fall into."""
    _asked: dict[str, dict[Key, tuple[RewriteView, str]]] = field(default_factory=dict)
    """By fingerprint: what is to be measured, what was seen of it then, and by which entry."""
    _calm: tuple[Situation | None, str] = (None, "")
    _served_s: float = 0.0
    """Time of calls for which this plan has served in this situation."""

    def see(self, snapshot: Snapshot) -> None:
        self.ledger.measured(self.signature, snapshot.measured)
        self._teach(snapshot.measured)
        self.ledger.served(snapshot.samples)
        if self._calm != (snapshot.situation, snapshot.plan):
            self._calm, self._served_s = (snapshot.situation, snapshot.plan), 0.0
        else:
            self._served_s += snapshot.served_s

    def _teach(self, rows: Iterable[Measurement]) -> None:
        for row in rows:
            found = self._take((self.signature, row.region, row.rewrite))
            if found is None or found[0].in_force not in found[0].seconds:
                continue
            view, entry = found
            after = replace(view, seconds={**view.seconds, entry: row.latency_s})
            earned = rewrite_reward(WEIGHTS, view=view, entry=entry, after=after)
            for _ in range(self.forming.rl_training_epochs):
                self.player.learn(view, entry, earned.total, after, end=enough(after))

    def _take(self, key: Key) -> tuple[RewriteView, str] | None:
        return next((asked.pop(key) for asked in self._asked.values() if key in asked), None)

    def learn(self, outcome: Outcome) -> None:
        """What was measured, or cannot be, is not asked for again."""
        if outcome.put_off:
            self._asked.pop(outcome.plan, None)
        else:
            self.ledger.asked.update(self._asked.get(outcome.plan, {}))

    def propose(
        self, plan: Plan, current_s: float, snapshot: Snapshot, roofline: Roofline, is_old: Tried
    ) -> Proposal | None:
        """For a quiet machine only: beside others a region falls short for their sake; and for
        calls of the sizes that pieces are known for. `is_old` tells what was tried already."""
        situation = snapshot.situation
        if situation is None or situation.neighbours or self._served_s < CALM_S:
            return None
        if situation.signature != self.signature:
            return None
        known_s = self.ledger.in_plan_s[situation, plan.fingerprint]
        if len(plan.regions) == 1:  # the model itself tells no region's time
            known_s = {plan.regions[0].name: current_s}
        if any(region.name not in known_s or not _plain(region) for region in plan.regions):
            return None
        scene = _Scene(self, plan, current_s, situation, roofline, known_s)
        for merged in scene.merged():
            if not is_old(situation, merged.plan.fingerprint):
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
            if deeper is not None:
                self._parts[region.ops] = deeper
                return self._divided(scene, now_s, is_old)
            slow = scene.slow(region, parts)
            if slow:
                return self._measure(region, slow)
            self._looked.add((scene.situation.signature, region), now_s, LOOKED_S)
        return None

    def _measure(self, region: Region, wanted: Mapping[Key, "_Wanted"]) -> Proposal:
        plan = Plan(regions=tuple(found.region for found in wanted.values()))
        self._asked[plan.fingerprint] = {key: (f.view, f.entry) for key, f in wanted.items()}
        self._asked = dict(list(self._asked.items())[-MAX_ASKED:])
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
    return region.split is None and region.unroll is None and region.engine == CALLER


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
        """The one that loses most time first. Of what is made of no pieces that is not known."""
        share = self.former.forming.performance_threshold
        lost_s: dict[Region, float] = {}
        for region in self.plan.regions:
            roof_s, known_s = self._roof_s(region), self.known_s[region.name]
            if roof_s is not None and roof_s < share * known_s:
                lost_s[region] = known_s - roof_s
        return sorted(lost_s, key=lambda region: -lost_s[region])

    def _roof_s(self, region: Region) -> float | None:
        work = self._work(region.ops)
        return None if work is None else least_s(work, self.roofline, self._threads(region))

    def _threads(self, region: Region) -> int:
        return region.threads or self.former.num_cores

    def _work(self, ops: Ops) -> Work | None:
        works = [piece.work for piece in cover(self.former.root, ops) or ()]
        if not works:
            return None
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
        worst = max(able, key=lambda part: self._lost_s(region, part))
        place = parts.index(worst)
        return [*parts[:place], *worst.children, *parts[place + 1 :]]

    def _lost_s(self, region: Region, part: Piece) -> float:
        """By the best entry that was measured."""
        taken_s = self._settings_s(region, part).values()
        roof_s = least_s(part.work, self.roofline, self._threads(region))
        return min(taken_s, default=0.0) - roof_s

    def wanted(self, region: Region, parts: Sequence[Piece]) -> dict[Key, _Wanted]:
        """What the player wants to have measured next, unless it is slow to build; of equal parts,
        one."""
        found: dict[Key, _Wanted] = {}
        for part in parts:
            view = self._view(region, part)
            name = view.in_force
            if name in view.seconds and not enough(view):
                name = self.former.player.choose(view)
            if name not in view.seconds and name in view.legal - SLOW:
                key, order = self._order(region, part, name, view)
                found.setdefault(key, order)
        return found

    def slow(self, region: Region, parts: Sequence[Piece]) -> dict[Key, _Wanted]:
        """When all else is known: one entry that is slow to build, for the part that loses most."""
        worst = max(parts, key=lambda part: self._lost_s(region, part))
        view = self._view(region, worst)
        fresh = sorted(SLOW & (view.legal - view.seconds.keys()))
        if not fresh or view.in_force not in view.seconds:
            return {}
        key, order = self._order(region, worst, fresh[0], view)
        return {key: order}

    def _order(
        self, region: Region, part: Piece, entry: str, view: RewriteView
    ) -> tuple[Key, _Wanted]:
        as_set = self._region(region, part.ops, entry)
        key = (self.situation.signature, part.identity, as_set.setting)
        return key, _Wanted(as_set, entry, view)

    def _view(self, region: Region, part: Piece) -> RewriteView:
        """Entries that were asked for and gave nothing are not legal any more."""
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
            compute_s=compute_s(part.work, self.roofline, self._threads(region)),
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
        return Region(ops=ops, rewrite=BY_NAME[entry].rewrite(self._threads(region)))

    def divided(self, region: Region, parts: Sequence[Piece]) -> Proposal | None:
        """Each part by the entry that is best for all of them together. What the region takes less
        than its parts by themselves, it takes less for being one."""
        alone_s = [self._settings_s(region, part) for part in parts]
        before_s, entry = self.known_s[region.name], _entry(region)
        if not all(entry in seconds for seconds in alone_s):
            return None
        loose_s = sum(seconds[entry] for seconds in alone_s)
        joined_s = max(0.0, loose_s - before_s) / (len(parts) - 1)
        apart_s = [STEP_S + self._crossing_s(first) for first in parts[:-1]]
        found = compose(alone_s, joined_s=joined_s, apart_s=apart_s, more_s=MORE_S)
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
            f"{DIVIDED}: {region.name} falls short; {len(regions)} regions, some by {others}",
        )

    def _crossing_s(self, first: Piece) -> float:
        """For what it hands over."""
        return 2 * first.made_bytes / self.roofline.dram_bytes_s

    def merged(self) -> Iterator[Proposal]:
        """All neighbours at once whose boundary costs more than its share; if that will not do, the
        two whose boundary costs most."""
        pairs = [pair for pair in pairwise(self.plan.regions) if self._worth_merging(*pair)]
        if pairs:
            yield self._merged(_in_chains(pairs))
        if len(pairs) > 1:
            yield self._merged([max(pairs, key=lambda pair: self._boundary_s(pair[0]))])

    def _merged(self, chains: Sequence[Sequence[Region]]) -> Proposal:
        old = tuple(region for chain in chains for region in chain)
        saved_s = sum(self._boundary_s(region) for chain in chains for region in chain[:-1])
        return self._proposal(
            old,
            [self._joined(chain) for chain in chains],
            max(self.current_s - saved_s, self.current_s / 2),
            f"{MERGED}: boundaries cost more than their share; {len(old)} regions become"
            f" {len(chains)}",
        )

    def _worth_merging(self, first: Region, second: Region) -> bool:
        both_s = self.known_s[first.name] + self.known_s[second.name]
        apart = self._boundary_s(first) > self.former.forming.merging_threshold * both_s
        return apart and first.rewrite.backend == second.rewrite.backend

    def _boundary_s(self, region: Region) -> float:
        """After it, before another by the same backend."""
        step_s = STEP_S + MORE_S.get(region.rewrite.backend, 0.0)
        pieces = cover(self.former.root, region.ops)
        return step_s + self._crossing_s(pieces[-1]) if pieces else step_s

    def _joined(self, chain: Sequence[Region]) -> Region:
        """By the setting of the one that takes longest."""
        longest = max(chain, key=lambda region: self.known_s[region.name])
        return replace(longest, ops=tuple(op for region in chain for op in region.ops))

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


def _in_chains(pairs: Sequence[tuple[Region, Region]]) -> list[list[Region]]:
    """Pairs in a row that share a region are one."""
    chains: list[list[Region]] = []
    for first, second in pairs:
        if chains and chains[-1][-1] == first:
            chains[-1].append(second)
        else:
            chains.append([first, second])
    return chains


def _entry(region: Region) -> str:
    """The name of what it runs by; of a backend of the user's own, its setting."""
    entry = entry_of(region.rewrite)
    return region.setting if entry is None else entry.name
