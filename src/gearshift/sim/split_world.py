"""Two engines, neighbours that come and go, and a region whose split is to be chosen again and
again.

Must not know who chooses. All that is random comes from one generator.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from gearshift.act.lower.shares import Shares
from gearshift.decide.split.actions import ACTIONS, FOLLOW, NAMES
from gearshift.decide.split.reward import SplitReward, Weights, split_reward
from gearshift.decide.split.view import EngineView, SplitView
from gearshift.sim.profiles import Parts, Profile

SPEEDS = ((1.0, 1.0), (1.0, 0.5), (0.5, 1.0), (1.0, 1 / 3), (1 / 3, 1.0))
CALLS = 8
"""Between two choices."""
SLICE_S = 0.004
"""A thread that loses its core waits so long for its next turn."""
NOISE, READING_NOISE = 0.03, 0.03
SMOOTH = 0.2
"""The share of one call in what is known of an engine's pace."""
LAG = 0.6
"""How much of a reading is news."""
MOST_NEIGHBOURS = 2
COME_OR_GO = 0.06
"""How likely somebody comes or goes between two choices."""


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
    weights: Weights = field(default_factory=Weights)
    profile: Profile = field(init=False)
    speeds: np.ndarray = field(init=False)
    neighbours: np.ndarray = field(init=False)
    _delays: np.ndarray = field(init=False)
    _row_s: list[float | None] = field(init=False)
    _shares: Shares = field(init=False)
    _in_force: int = 0

    def reset(self) -> SplitView:
        self.profile = self.profiles[int(self.random.integers(len(self.profiles)))]
        self.speeds = np.array(SPEEDS[int(self.random.integers(len(SPEEDS)))])
        self.neighbours = self.random.integers(0, 2, 2)
        self._delays = self._true_delays()
        self._row_s = [None, None]
        self._shares = Shares(2)
        self._shares.rehearsed()
        self._in_force = 0
        return self.view()

    def legal(self, action: int) -> bool:
        return self._parts(action) is not None

    def step(self, action: int) -> Stepped:
        """An illegal action changes nothing, and earns what the split in force does, less one."""
        legal = self.legal(action)
        if legal:
            self._in_force = action
        calls = [self._call(self._in_force) for _ in range(CALLS)]
        took_s = float(np.mean([took for took, _ in calls]))
        busy_s = np.mean([busy for _, busy in calls], axis=0)
        parts = self._parts(self._in_force)
        assert parts is not None
        earned = split_reward(
            self.weights,
            took_s=took_s,
            alone_s=self.profile.alone_s,
            busy_s=[float(seconds) for seconds in busy_s],
            link_share=parts.link_share,
            held_share=parts.held_share,
        )
        oracle_s = min(self.mean_s(a) for a in range(len(ACTIONS)) if self.legal(a))
        self._move_on()
        return Stepped(took_s=took_s, oracle_s=oracle_s, reward=earned, view=self.view())

    def mean_s(self, action: int) -> float:
        """What a call takes on average as things are; shares that follow are taken to be right."""
        parts = self._parts(action)
        assert parts is not None
        pace = self.speeds / (1 + self.neighbours)
        work = np.array(parts.parts_s)
        if action == FOLLOW:
            work = work.sum() * pace / pace.sum()
        return float((work / pace).max() + parts.joined_s)

    def view(self) -> SplitView:
        engines = [
            EngineView(
                others_share=self._read(count / (1 + count)),
                run_delay_share=self._read(delay),
                dram_share=None,
                l3_hit_share=None,
                pace=pace,
            )
            for count, delay, pace in zip(self.neighbours, self._delays, self._paces(), strict=True)
        ]
        profile = self.profile
        return SplitView(
            engines=(engines[0], engines[1]),
            kind=profile.kind,
            num_rows=profile.num_rows,
            flops=profile.flops,
            moved_bytes=profile.moved_bytes,
            item_bytes=profile.item_bytes,
            in_force=NAMES[self._in_force],
            estimates_s=self._estimates([engine.speed for engine in engines]),
        )

    def _paces(self) -> list[float | None]:
        """Of the engines that worked, as seen from what they did."""
        known = [seconds for seconds in self._row_s if seconds is not None]
        return [None if s is None else min(known) / s for s in self._row_s]

    def _estimates(self, seen: Sequence[float]) -> dict[str, float]:
        """As the profiling stage has them: shares of the work, over what is seen to be left."""
        pace = np.array(seen)
        found = {}
        for index, action in enumerate(ACTIONS):
            if self.legal(index):
                shares = pace / pace.sum() if action.shares is None else np.array(action.shares)
                found[NAMES[index]] = float((self.profile.alone_s * shares / pace).max())
        return found

    def _parts(self, action: int) -> Parts | None:
        chosen = ACTIONS[action]
        if chosen.split is None:
            alone_s = self.profile.alone_s
            parts_s = (alone_s, 0.0) if chosen.member == 0 else (0.0, alone_s)
            return Parts(parts_s=parts_s, joined_s=0.0, link_share=0.0, held_share=1.0)
        return self.profile.splits.get(NAMES[action])

    def _call(self, action: int) -> tuple[float, np.ndarray]:
        parts = self._parts(action)
        assert parts is not None
        work = np.array(parts.parts_s)
        if action == FOLLOW:
            work = self._followed(work.sum())
        alone_s = work / self.speeds * np.exp(self.random.normal(0, NOISE, 2))
        lost = self.random.poisson(alone_s / SLICE_S)
        busy_s = alone_s + self.neighbours * lost * SLICE_S
        if action == FOLLOW:
            self._note(work, busy_s)
        for member in range(2):
            if work[member] > 0:
                now_s, known_s = busy_s[member] / work[member], self._row_s[member]
                news = now_s if known_s is None else known_s + SMOOTH * (now_s - known_s)
                self._row_s[member] = float(news)
        return float(busy_s.max() + parts.joined_s), busy_s

    def _followed(self, work_s: float) -> np.ndarray:
        num_rows = max(2, self.profile.num_rows)
        return np.array(self._shares.of(num_rows)) / num_rows * work_s

    def _note(self, work: np.ndarray, busy_s: np.ndarray) -> None:
        num_rows = max(2, self.profile.num_rows)
        rows = np.rint(work / work.sum() * num_rows).astype(int)
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
