"""Two engines, neighbours that come and go, and a region whose split is to be chosen again and
again.

Must not know who chooses. All that is random comes from one generator.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from gearshift.act.lower.shares import Shares
from gearshift.decide.split.actions import ACTIONS, BOTH, FOLLOW, NAMES
from gearshift.decide.split.profiling import Experience, seen
from gearshift.decide.split.reward import SplitReward, split_reward
from gearshift.decide.split.view import Engines, EngineView, SplitView
from gearshift.plan.objective import SplitWeights
from gearshift.plan.split import apportioned
from gearshift.sim.profiles import Parts, Profile

UNLIKE = ((1.0, 0.5), (0.5, 1.0), (1.0, 1 / 3), (1 / 3, 1.0))
SPEEDS = (*((1.0, 1.0),) * len(UNLIKE), *UNLIKE)
"""Most machines have cores that are alike; half of the time these are."""
CALLS = 8
"""Between two choices."""
SLICE_S = 0.004
"""A thread that loses its core waits so long for its next turn."""
NOISE, READING_NOISE = 0.03, 0.03
SMOOTH = 0.2
"""The share of one call in what is known of an engine's pace."""
LAG = 0.6
"""How much of a reading is news."""
AVERAGED = 200
MOST_NEIGHBOURS = 2
COME_OR_GO = 0.06
"""How likely somebody comes or goes between two choices."""
BANDWIDTH_BYTES_S = 2e10
BLIND = 0.5
"""How likely a machine has no memory counters."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Stepped:
    took_s: float
    """Mean of the calls."""
    oracle_s: float
    """What the best legal action would have taken, on average."""
    reward: SplitReward
    view: SplitView


@dataclass(slots=True)
class SplitWorld:
    profiles: Sequence[Profile]
    random: np.random.Generator
    weights: SplitWeights = field(default_factory=SplitWeights)
    skew: float = 0.0
    """How far each split's times are moved in each episode, as a logarithm: to learn from, so that
    it is not the regions themselves that are learned."""
    profile: Profile = field(init=False)
    speeds: np.ndarray = field(init=False)
    neighbours: np.ndarray = field(init=False)
    _delays: np.ndarray = field(init=False)
    _row_s: list[float | None] = field(init=False)
    """For each engine, what a unit of work took it lately; None if it had none."""
    _shares: Shares = field(init=False)
    _experience: Experience = field(init=False)
    _view: SplitView = field(init=False)
    _blind: bool = False
    _l3_hit_share: float = 0.0
    _means_s: dict[tuple[int, ...], float] = field(default_factory=dict)
    """By action and neighbours, in this episode."""
    _took_s: float = 0.0
    _in_force: int = 0

    def reset(self) -> SplitView:
        drawn = self.profiles[int(self.random.integers(len(self.profiles)))]
        self.profile = drawn if self.skew == 0 else self._skewed(drawn)
        self.speeds = np.array(SPEEDS[int(self.random.integers(len(SPEEDS)))])
        self.neighbours = self.random.integers(0, 2, 2)
        self._delays = self._true_delays()
        self._row_s = [None, None]
        self._means_s = {}
        self._shares = Shares(2)
        self._shares.rehearsed()
        self._blind = bool(self.random.random() < BLIND)
        self._l3_hit_share = float(self.random.random())
        self._took_s = self.profile.alone_s
        self._in_force = 0
        self._experience = Experience()
        self._view = self._look()
        return self._view

    def _skewed(self, profile: Profile) -> Profile:
        factors = np.exp(self.random.normal(0, self.skew, len(profile.splits)))
        splits = {
            name: replace(parts, parts_s=(parts.parts_s[0] * factor, parts.parts_s[1] * factor))
            for factor, (name, parts) in zip(
                map(float, factors), profile.splits.items(), strict=True
            )
        }
        return replace(profile, splits=splits)

    def legal(self, action: int) -> bool:
        return self._parts(action) is not None

    def step(self, action: int) -> Stepped:
        """An illegal action changes nothing, and earns what the split in force does."""
        legal = self.legal(action)
        if legal:
            self._in_force = action
        calls = [self._call(self._in_force) for _ in range(CALLS)]
        took_s = self._took_s = float(np.mean([took for took, _ in calls]))
        busy_s = np.mean([busy for _, busy in calls], axis=0)
        parts = self._parts(self._in_force)
        assert parts is not None
        earned = split_reward(
            self.weights,
            took_s=took_s,
            alone_s=self.profile.alone_s,
            busy_s=[] if self._in_force == BOTH else [float(seconds) for seconds in busy_s],
            link_share=parts.link_share,
            held_share=parts.held_share,
        )
        oracle_s = min(self.mean_s(a) for a in range(len(ACTIONS)) if self.legal(a))
        self._remember(took_s)
        self._move_on()
        self._view = self._look()
        return Stepped(took_s=took_s, oracle_s=oracle_s, reward=earned, view=self._view)

    def mean_s(self, action: int) -> float:
        """What a call takes on average as things are; shares that follow are taken to be right."""
        key = (action, *map(int, self.neighbours))
        if key not in self._means_s:
            self._means_s[key] = self._average_s(action)
        return self._means_s[key]

    def _average_s(self, action: int) -> float:
        """Of many calls: who waits for the slower of two waits longer than either on average."""
        parts = self._parts(action)
        assert parts is not None
        pace = self.speeds / (1 + self.neighbours)
        work = np.array(parts.parts_s)
        if action == FOLLOW:
            rows = np.array(apportioned(self._num_rows, [float(1 / speed) for speed in pace]))
            work = work.sum() * rows / self._num_rows
        busy_s = self._busy_s(np.tile(work, (AVERAGED, 1)), np.random.default_rng(0))
        return float(busy_s.max(1).mean() + parts.joined_s)

    def _busy_s(self, work: np.ndarray, random: np.random.Generator) -> np.ndarray:
        """How long each engine is at it: beside neighbours it loses its core now and then."""
        alone_s = work / self.speeds * np.exp(random.normal(0, NOISE, work.shape))
        lost = random.poisson(alone_s / SLICE_S)
        return np.asarray(alone_s + self.neighbours * lost * SLICE_S)

    @property
    def _num_rows(self) -> int:
        return max(2, self.profile.num_rows)

    @property
    def _engines(self) -> Engines:
        return self._engine(0), self._engine(1)

    def _remember(self, took_s: float) -> None:
        """What the last calls took, and the engines as they were meanwhile."""
        engines, profile = self._engines, self.profile
        self._experience.see(engines)
        self._experience.note(
            profile, engines, self._in_force, alone_s=profile.alone_s, took_s=took_s
        )

    def _look(self) -> SplitView:
        return seen(
            self.profile,
            self._engines,
            in_force=self._in_force,
            legal=[index for index in range(len(ACTIONS)) if self.legal(index)],
            alone_s=self.profile.alone_s,
            experience=self._experience,
        )

    def _engine(self, member: int) -> EngineView:
        """An engine at work shares its core with who is there; of one at rest only the core's own
        load is known."""
        count = int(self.neighbours[member])
        parts = self._parts(self._in_force)
        assert parts is not None
        at_work, pinned = parts.parts_s[member] > 0, self._in_force != BOTH
        moved_share = min(1.0, self.profile.moved_bytes / self._took_s / BANDWIDTH_BYTES_S)
        return EngineView(
            others_share=self._read(count / (1 + count) if at_work else min(1, count)),
            run_delay_share=self._read(self._delays[member]) if at_work and pinned else None,
            dram_share=None if self._blind else self._read(moved_share),
            l3_hit_share=None if self._blind else self._read(self._l3_hit_share),
            pace=self._pace(member),
        )

    def _pace(self, member: int) -> float | None:
        """As seen from what it did, if both did something."""
        mine, other = self._row_s[member], self._row_s[1 - member]
        return None if mine is None or other is None else min(mine, other) / mine

    def _parts(self, action: int) -> Parts | None:
        chosen = ACTIONS[action]
        if chosen.member is None:
            return self.profile.splits.get(NAMES[action])
        alone_s = self.profile.alone_s
        parts_s = (alone_s, 0.0) if chosen.member == 0 else (0.0, alone_s)
        return Parts(parts_s=parts_s, joined_s=0.0, link_share=0.0, held_share=1.0)

    def _call(self, action: int) -> tuple[float, np.ndarray]:
        parts = self._parts(action)
        assert parts is not None
        work = np.array(parts.parts_s)
        if action == FOLLOW:
            work = self._followed(work.sum())
        busy_s = self._busy_s(work, self.random)
        if action == FOLLOW:
            self._note(work, busy_s)
        for member in range(2):
            if action == BOTH or work[member] == 0:  # the one cannot be told from the other
                self._row_s[member] = None
            else:
                now_s, known_s = busy_s[member] / work[member], self._row_s[member]
                news = now_s if known_s is None else known_s + SMOOTH * (now_s - known_s)
                self._row_s[member] = float(news)
        return float(busy_s.max() + parts.joined_s), busy_s

    def _followed(self, work_s: float) -> np.ndarray:
        return np.array(self._shares.of(self._num_rows)) / self._num_rows * work_s

    def _note(self, work: np.ndarray, busy_s: np.ndarray) -> None:
        rows = np.rint(work / work.sum() * self._num_rows).astype(int)
        for member in range(2):
            if rows[member]:
                self._shares.note(member, int(rows[member]), float(busy_s[member]))
            else:
                self._shares.left_out(member)

    def _move_on(self) -> None:
        for member in range(2):
            if self.random.random() < COME_OR_GO:
                self.neighbours[member] = self.random.integers(0, MOST_NEIGHBOURS + 1)
        self._delays += LAG * (self._true_delays() - self._delays)

    def _true_delays(self) -> np.ndarray:
        return np.asarray(1 - 1 / (1 + self.neighbours), float)

    def _read(self, value: float) -> float:
        return float(np.clip(value + self.random.normal(0, READING_NOISE), 0, 0.95))
